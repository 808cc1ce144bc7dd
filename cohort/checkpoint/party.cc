#include "cohort/checkpoint/party.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/base/trace.h"

namespace cohort::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr auto kLook = std::chrono::milliseconds(10);  // looked for, not notified: what another host writes raises no event here
constexpr const char* kErrorText = "error";

std::string part_path(const Party& party, int rank) { return fmt::format("{}/.part-{:05}", party.folder, rank); }

bool there(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

void say(const Party& party, Manifest manifest, Part part) {
  manifest.files = std::move(part.files);
  manifest.pieces = std::move(part.pieces);
  write_file_atomically(part_path(party, party.rank), format_manifest(manifest), 0600);
}

// What this rank wrote is in the checkpoint of that name.
bool is_in(const std::string& path, std::int64_t step, const Part& part) {
  try {
    const auto manifest = read_manifest(path, step);
    for (const ManifestFile& mine : part.files) {
      const auto* listed = manifest.find(mine.name);
      if (listed == nullptr || *listed != mine) return false;
    }
    return true;
  } catch (const Failure&) {
    return false;
  }
}

Part parse_part(const std::string& path, int rank, std::int64_t step) {
  auto manifest = parse_manifest(read_file(path, kMostManifestBytes), path, Whole::part);
  if (const auto error = manifest.texts.find(kErrorText); error != manifest.texts.end())
    throw_failure(Kind::system, "rank {} could not write its part: {}", rank, error->second);
  if (manifest.step != step) throw_failure(Kind::corrupt, "{}: of step {}, not {}", path, manifest.step, step);
  return {std::move(manifest.files), std::move(manifest.pieces)};
}

}  // namespace

Part write_part(const std::string& folder, std::span<const TensorFile> files, bool reread) {
  Part part;
  for (const TensorFile& file : files) {
    std::vector<WrittenTensor> each;
    const auto w = write_safetensors(fmt::format("{}/{}", folder, file.name), file.tensors, file.metadata, {.mode = 0600}, &each);
    part.files.push_back({file.name, w.bytes, w.sha256});
    for (const WrittenTensor& t : each) {
      const TensorView& view = *t.tensor;
      const PartOf of = view.of.value_or(PartOf{view.name, view.shape, 0});
      part.pieces.push_back({file.name, t.offset, view.dtype, of, elements_of(view.shape), t.sha256});
    }
  }
  Manifest written;
  written.files = part.files;
  if (reread) check_digests(folder, written);
  return part;
}

Saved contribute(const Party& party, const Manifest& manifest, std::span<const TensorFile> files, const std::string& path) {
  const Span span{"checkpoint", party.folder};
  const Deadline deadline = Deadline::in(party.patience);
  Manifest bare{.step = manifest.step, .world_size = party.ranks};
  Saved saved{{path, manifest}};
  Part part;
  const auto called_off = [&] {
    throw_failure(Kind::aborted, "checkpoint of step {} was called off; rank 0 says why, and older ones stay", manifest.step);
  };
  try {
    part = write_part(party.folder, files, true);
    for (const ManifestFile& file : part.files) saved.bytes += file.bytes;
    say(party, bare, part);
  } catch (const Failure& failure) {
    if (!there(party.folder)) called_off();
    decline(party, manifest.step, failure.error());
    throw_failure(failure.kind(), "checkpoint of step {}: the part of rank {} was not written, so nobody's is kept: {}", manifest.step,
                  party.rank, failure.what());
  }
  while (there(party.folder)) {
    if (deadline.passed())
      throw_failure(Kind::timeout, "checkpoint of step {}: the part of rank {} is written, but rank 0 did not end the save within {}",
                    manifest.step, party.rank, format_seconds(party.patience));
    std::this_thread::sleep_for(kLook);
  }
  if (!is_in(path, manifest.step, part)) called_off();
  return saved;
}

void decline(const Party& party, std::int64_t step, const Error& why) noexcept {
  try {
    Manifest bare{.step = step, .world_size = party.ranks};
    bare.texts[kErrorText] = printable(why.what);
    if (there(party.folder)) say(party, bare, {});
  } catch (const std::exception& error) {  // rank 0 gives up by itself when its patience ends
    log_error("checkpoint of step {}: rank {} cannot even say that it failed: {}", step, party.rank, error.what());
  }
}

std::vector<Part> await_parts(const Party& party, std::int64_t step) {
  const Deadline deadline = Deadline::in(party.patience);
  std::vector<Part> parts;
  std::vector<bool> came(static_cast<std::size_t>(party.ranks), false);
  parts.resize(static_cast<std::size_t>(party.ranks));
  for (int missing = party.ranks - 1; missing > 0;) {
    for (int rank = 1; rank < party.ranks; ++rank) {
      const auto path = part_path(party, rank);
      const auto at = static_cast<std::size_t>(rank);
      if (came[at] || !there(path)) continue;
      parts[at] = parse_part(path, rank, step);
      if (::unlink(path.c_str()) != 0) throw_system(fmt::format("remove {}", path));
      came[at] = true;
      --missing;
    }
    if (missing == 0) break;
    if (deadline.passed()) {
      std::vector<int> silent;
      for (int rank = 1; rank < party.ranks; ++rank)
        if (!came[static_cast<std::size_t>(rank)]) silent.push_back(rank);
      throw_failure(Kind::timeout, "no part from rank {} within {}; a slow disk there, or a rank that cannot see {}?",
                    fmt::join(silent, ", "), format_seconds(party.patience), party.folder);
    }
    std::this_thread::sleep_for(kLook);
  }
  return parts;
}

}  // namespace cohort::checkpoint
