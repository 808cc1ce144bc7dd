// Reading side of a Store: which checkpoints there are, and which of them hold.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/regular_file.h"
#include "cohort/checkpoint/sha256.h"
#include "cohort/checkpoint/store.h"

namespace cohort::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr int kMostScans = 100;             // a writer would have to prune once during each
constexpr std::size_t kPieceBytes = 1_MiB;  // stays in L2 between read and hash

std::string name_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }

// Reads until the end, whatever stat said, and at most one byte more than expected.
void check_digest(const Folder& folder, const ManifestFile& file) {
  const std::string path = folder.path_of(file.name);
  const Fd fd = open_regular({folder, file.name}, O_RDONLY);
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  std::vector<std::byte> piece(kPieceBytes);
  Sha256 hash;
  std::uint64_t bytes = 0;
  while (bytes <= file.bytes) {
    const auto n = ::read(fd.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system(fmt::format("read {} at offset {}", path, bytes));
    if (n == 0) break;
    hash.add(std::span(piece).first(static_cast<std::size_t>(n)));
    bytes += static_cast<std::uint64_t>(n);
  }
  const auto is = hash.hex();
  if (bytes != file.bytes || is != file.sha256)
    throw_failure(Kind::corrupt, "{}: {} bytes with sha256 {}, the manifest says {} bytes with {}", path, bytes, is, file.bytes,
                  file.sha256);
}

}  // namespace

std::string step_name(std::int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::optional<std::int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto digits = name.substr(kPrefix.size());
  if (digits.size() < 8 || digits.size() > 18 || digits.find_first_not_of("0123456789") != digits.npos) return std::nullopt;
  const auto step = std::stoll(std::string(digits));
  if (step_name(step) != name) return std::nullopt;
  return step;
}

std::string Checkpoint::file(std::string_view name) const {
  if (manifest.find(name) != nullptr) return fmt::format("{}/{}", path, name);
  std::vector<std::string_view> known;
  for (const ManifestFile& f : manifest.files) known.push_back(f.name);
  throw_unknown(fmt::format("file of {}", path), name, known);
}

Manifest read_manifest(const std::string& folder, std::int64_t step) { return read_manifest(open_step_folder(folder), step); }

Manifest read_manifest(const Folder& folder, std::int64_t step) {
  const auto path = folder.path_of(kManifestName);
  auto manifest = parse_manifest(read_regular_file({folder, std::string(kManifestName)}, kMostManifestBytes), path);
  if (manifest.step != step) throw_failure(Kind::corrupt, "{}: of step {}, in the folder of step {}", path, manifest.step, step);
  for (const ManifestFile& file : manifest.files) {
    struct stat st {};
    const auto of = folder.path_of(file.name);
    if (::fstatat(folder.fd(), file.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) throw_system(fmt::format("stat {}", of));
    if (!S_ISREG(st.st_mode)) throw_failure(Kind::corrupt, "{} is no regular file", of);
    if (static_cast<std::uint64_t>(st.st_size) != file.bytes)
      throw_failure(Kind::corrupt, "{}: {} bytes, the manifest says {}", of, st.st_size, file.bytes);
  }
  return manifest;
}

void check_digests(const Folder& folder, const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) check_digest(folder, file);
}

Checkpoint Store::verify(const std::string& path) const {
  const auto step = step_of_name(name_of(path));
  if (!step) throw_failure(Kind::usage, "{} is no checkpoint: its name is not like {}", path, step_name(1200));
  const Folder folder = open_step_folder(path, own());
  Checkpoint checkpoint{path, read_manifest(folder, *step)};
  check_digests(folder, checkpoint.manifest);
  return checkpoint;
}

std::vector<Listed> Store::list() const { return list(open()); }

std::vector<Listed> Store::list(const Folder& folder) const {
  std::vector<Listed> found;
  for (const std::string& name : folder.names())
    if (const auto step = step_of_name(name)) found.push_back({*step, fmt::format("{}/{}", folder_, name)});
  std::sort(found.begin(), found.end(), [](const Listed& a, const Listed& b) { return a.step > b.step; });
  return found;
}

// The newest of those listed that holds. False when some went away during the scan: the run goes on meanwhile and prunes.
bool Store::look(Newest& newest, const std::function<void(const Checkpoint&)>& accept) const {
  bool all_there = true;
  for (const Listed& listed : list()) {
    try {
      Checkpoint whole = verify(listed.path);
      if (accept) accept(whole);
      newest.checkpoint = std::move(whole);
      return true;
    } catch (const Failure& failure) {
      std::error_code error;
      if (!std::filesystem::exists(std::filesystem::symlink_status(listed.path, error))) {
        all_there = false;
        continue;
      }
      log_warning("checkpoint {} cannot be used, falling back to the one before it: {}", listed.path, failure.what());
      newest.refused.push_back({listed.path, failure.error()});
    }
  }
  return all_there;
}

Newest Store::newest(const std::function<void(const Checkpoint&)>& accept) const {
  Newest newest;
  for (int looks = 0; looks < kMostScans; ++looks) {
    newest = {};
    if (look(newest, accept)) break;
  }
  if (!newest.checkpoint && !newest.refused.empty()) log_error("{}: none of {} checkpoints can be used", folder_, newest.refused.size());
  return newest;
}

}  // namespace cohort::checkpoint
