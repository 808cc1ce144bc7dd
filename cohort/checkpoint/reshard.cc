#include "cohort/checkpoint/reshard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>

#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/regular_file.h"
#include "cohort/checkpoint/shard_writer.h"
#include "cohort/checkpoint/staging_directory.h"

namespace cohort::checkpoint {
namespace {

namespace fs = std::filesystem;

Checkpoint open_step(const std::string& path) {
  const auto name = fmt::format("{}/{}", path, kManifestName);
  const Folder folder = open_step_folder(path);
  Checkpoint c{path, parse_manifest(read_regular_file({folder, std::string(kManifestName)}, kMostManifestBytes), name)};
  const auto step = step_of_name(fs::path(path).filename().string());
  if (step && *step != c.manifest.step)
    throw_failure(Kind::corrupt, "{}: of step {}, in the folder of step {}", name, c.manifest.step, *step);
  return c;
}

// Every piece has a file that is long enough, before gigabytes are written.
void check_places(const Checkpoint& c) {
  for (const ManifestPiece& p : c.manifest.pieces) {
    struct stat st {};
    const auto path = fmt::format("{}/{}", c.path, p.file);
    const auto what = fmt::format("piece '{}' at offset {} with sha256 {}", printable(p.name()), p.offset, p.sha256);
    if (::lstat(path.c_str(), &st) != 0) throw_failure(Kind::corrupt, "{}, which holds {}, is missing", path, what);
    if (!S_ISREG(st.st_mode)) throw_failure(Kind::corrupt, "{}, which holds {}, is no regular file", path, what);
    if (static_cast<std::uint64_t>(st.st_size) < p.offset + p.bytes())
      throw_failure(Kind::corrupt, "{}: {} is truncated: the file has {} bytes, the piece ends at {}", path, what, st.st_size,
                    p.offset + p.bytes());
  }
  for (const ManifestFile& file : c.manifest.files) open_regular(fmt::format("{}/{}", c.path, file.name), O_RDONLY);  // without pieces too
}

// Every byte of every file, as a job that starts from it does: no piece covers lengths, headers and padding. Last, so that damage within a
// piece has been reported by the piece's name.
void check_files(const Checkpoint& c) { check_digests(open_step_folder(c.path), read_manifest(c.path, c.manifest.step)); }

void check_free_space(const std::string& folder, std::uint64_t bytes) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) throw_system(fmt::format("ask {} for its free space", folder));
  const std::uint64_t free = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (free < bytes)
    throw_failure(Kind::system, "{} has {} free, {} are needed: full disk", folder, format_bytes(free), format_bytes(bytes));
}

// As safetensors files are ordered: wide elements first, so that every element lies aligned.
std::vector<const StoredTensor*> in_file_order(const Contents& contents, const std::function<bool(const StoredTensor&)>& wanted) {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& t : contents.tensors())
    if (wanted(t)) order.push_back(&t);
  std::stable_sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    const auto of_a = dtype_alignment(a->dtype), of_b = dtype_alignment(b->dtype);
    return of_a != of_b ? of_a > of_b : a->name < b->name;
  });
  return order;
}

// Counts bytes for whoever watches.
class Meter {
 public:
  Meter(std::uint64_t total, const Progress& progress) : progress_(progress), total_(total) {}
  void add(std::uint64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }

 private:
  const Progress& progress_;
  const std::uint64_t total_;
  std::uint64_t done_ = 0;
};

std::uint64_t bytes_of(std::span<const StoredTensor* const> tensors) {
  std::uint64_t bytes = 0;
  for (const StoredTensor* t : tensors) bytes += t->bytes();
  return bytes;
}

// Boxes lie in their files in another order than the tensor: each is compared with its digest, then the tensor is read element by element.
void copy_boxes(const Contents& from, const StoredTensor& tensor, ShardWriter& into, Meter& meter) {
  for (const ManifestPiece& piece : tensor.pieces) read_piece(from.checkpoint().path, piece, [](ConstBytes) {});
  const std::uint64_t bits = dtype_bits(tensor.dtype), each = std::uint64_t{1_MiB} * 8 / bits;
  std::vector<std::byte> stretch(std::min(each, tensor.elements()) * bits / 8);
  for (std::uint64_t first = 0; first < tensor.elements(); first += each) {
    const auto count = std::min(each, tensor.elements() - first);
    const Bytes here = Bytes(stretch).first(count * bits / 8);
    from.read(tensor, first, count, here);
    into.take(here);
    meter.add(here.size());
  }
}

void copy_tensors(const Contents& from, std::span<const StoredTensor* const> tensors, ShardWriter& into, Meter& meter) {
  for (const StoredTensor* tensor : tensors) {
    if (tensor->in_boxes()) {
      copy_boxes(from, *tensor, into, meter);
      continue;
    }
    for (const ManifestPiece& piece : tensor->pieces)
      read_piece(from.checkpoint().path, piece, [&](ConstBytes bytes) {
        into.take(bytes);
        meter.add(bytes.size());
      });
  }
}

// One group's files in the staging.
Part write_group(const Contents& from, const std::string& group, const Layout& layout, const Folder& folder, Meter& meter) {
  const bool cut = layout.stage == 3 || (layout.stage > 0 && group != kModelGroup);
  std::vector<std::string> names;
  for (int rank = 0; rank < (cut ? layout.ranks : 1); ++rank)
    names.push_back(cut ? shard_file(group, rank, layout.ranks) : whole_file(group));
  const auto tensors = in_file_order(from, [&](const StoredTensor& t) { return t.group == group; });
  ShardWriter writer(folder, names, plan_cuts(tensors, names.size()), from.metadata(group), {.mode = 0600});
  copy_tensors(from, tensors, writer, meter);
  return writer.finish();
}

std::string target_path(const std::string& to, std::int64_t step) {
  auto path = fs::path(to).lexically_normal().string();
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const auto named = step_of_name(fs::path(path).filename().string());
  if (named && *named != step)
    throw_failure(Kind::usage, "{}: the checkpoint is of step {}, its folder must be called {}", to, step, step_name(step));
  return named ? path : fmt::format("{}/{}", path, step_name(step));
}

void refuse_existing(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) == 0)
    throw_failure(Kind::usage, "{} is there already, and nothing is overwritten: name another, or move it", path);
}

void give_name(const std::string& temporary, const std::string& path) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EINVAL || errno == ENOSYS) {  // no flags on this file system; a folder that is not empty is refused all the same
    refuse_existing(path);
    if (::rename(temporary.c_str(), path.c_str()) == 0) return;
  }
  if (errno == EEXIST) refuse_existing(path);
  throw_system(fmt::format("rename {} to {}", temporary, path));
}

std::string folder_of(const std::string& path) {
  const auto above = fs::path(path).parent_path().string();
  return above.empty() ? "." : above;
}

}  // namespace

Checkpoint open_checkpoint(const std::string& path) {
  if (fs::exists(fs::path(path) / kManifestName)) return open_step(path);
  const auto inside = fs::path(path) / "checkpoints";
  const fs::path folder = fs::is_directory(inside) ? inside : fs::path(path);
  std::string newest;
  std::int64_t step = -1;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (const auto found = step_of_name(entry->path().filename().string()); found && *found > step)
      step = *found, newest = entry->path().string();
  if (newest.empty()) throw_failure(Kind::usage, "{} holds no checkpoint: name a folder like {}, or a run's", path, step_name(1200));
  return open_step(newest);
}

ReshardResult reshard(const Checkpoint& from, const std::string& to, const Layout& layout, const Progress& progress) {
  if (layout.stage < 0 || layout.stage > 3) throw_failure(Kind::usage, "stage {}: 0, 1, 2 or 3", layout.stage);
  if (layout.ranks < 1 || layout.ranks > kMostReshardRanks)
    throw_failure(Kind::usage, "{} ranks: 1 to {}, whose files are open at once", layout.ranks, kMostReshardRanks);
  const auto path = target_path(to, from.manifest.step);
  refuse_existing(path);
  check_places(from);
  const Contents contents(from);
  const auto bytes = bytes_of(in_file_order(contents, [](const StoredTensor&) { return true; }));
  Meter meter(bytes, progress);
  const auto parent = folder_of(path);
  remove_stale_staging(make_durable_folder(parent));
  check_free_space(parent, bytes);
  StagingDirectory staging(staging_path(parent, from.manifest.step));
  Manifest manifest = from.manifest;
  manifest.world_size = layout.ranks;
  manifest.files.clear();
  manifest.pieces.clear();
  for (const auto& group : contents.groups()) {
    Part part = write_group(contents, group, layout, staging.folder(), meter);
    std::move(part.files.begin(), part.files.end(), std::back_inserter(manifest.files));
    std::move(part.pieces.begin(), part.pieces.end(), std::back_inserter(manifest.pieces));
  }
  check_files(from);
  ReshardResult made{path, manifest.files.size(), contents.tensors().size(), manifest.pieces.size(), bytes};
  if (layout.stage == 0) manifest.pieces.clear();  // whole tensors: the headers say it, and every reader takes it
  write_file_atomically({staging.folder(), std::string(kManifestName)}, format_manifest(manifest), 0600);
  staging.folder().sync();
  give_name(staging.path(), path);
  staging.moved_away();
  staging.above().sync();
  return made;
}

ReshardResult consolidate(const Checkpoint& from, const std::string& file, bool optimizer, const Progress& progress) {
  refuse_existing(file);
  check_places(from);
  const Contents contents(from);
  const auto tensors = in_file_order(contents, [&](const StoredTensor& t) { return optimizer || t.group == kModelGroup; });
  const auto bytes = bytes_of(tensors);
  Meter meter(bytes, progress);
  std::set<std::string_view> names;
  for (const StoredTensor* t : tensors)
    if (!names.insert(t->name).second)
      throw_failure(Kind::usage, "two groups of {} have a '{}': one file cannot hold both", from.path, printable(t->name));
  check_free_space(folder_of(file), bytes);
  StagingDirectory staging(staging_path(folder_of(file), from.manifest.step));
  const std::string name = "whole.safetensors";
  ShardWriter writer(staging.folder(), {name}, plan_cuts(tensors, 1), contents.metadata(kModelGroup));
  copy_tensors(contents, tensors, writer, meter);
  ReshardResult made{file, 1, tensors.size(), writer.finish().pieces.size(), bytes};
  check_files(from);
  give_name(fmt::format("{}/{}", staging.path(), name), file);
  staging.above().sync();
  return made;
}

}  // namespace cohort::checkpoint
