#include "cohort/checkpoint/sharded_save.h"

#include <fmt/format.h>

#include <filesystem>
#include <thread>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/base/trace.h"
#include "cohort/checkpoint/regular_file.h"

namespace cohort::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr auto kPartPoll = std::chrono::milliseconds(10);  // polled, not notified: what another host writes raises no event here
constexpr const char* kErrorText = "error";

std::string part_name(int rank) { return fmt::format(".part-{:05}", rank); }

Folder open(const ShardedSave& sharded_save) { return {sharded_save.folder, sharded_save.own}; }

bool there(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

void say(const Folder& folder, int rank, Manifest manifest, Part part) {
  manifest.files = std::move(part.files);
  manifest.pieces = std::move(part.pieces);
  write_file_atomically({folder, part_name(rank)}, format_manifest(manifest), 0600);
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

// An empty file needs no room on a full disk. Without it rank 0 waits until its patience is over, and no other save begins.
void decline_without_words(const ShardedSave& sharded_save) noexcept {
  try {
    write_file_atomically({open(sharded_save), part_name(sharded_save.rank)}, "", 0600);
  } catch (const std::exception& error) {
    log_debug("{}: {}", sharded_save.folder, error.what());
  }
}

Part parse_part(const Folder& folder, int rank, std::int64_t step) {
  const auto path = folder.path_of(part_name(rank));
  const auto text = read_regular_file({folder, part_name(rank)}, kMostManifestBytes);
  if (text.empty())
    throw_failure(Kind::system, "rank {} could not write its part, nor why: its disk has no room, or its log has the reason", rank);
  auto manifest = parse_manifest(text, path, Whole::part);
  if (const auto error = manifest.texts.find(kErrorText); error != manifest.texts.end())
    throw_failure(Kind::system, "rank {} could not write its part: {}", rank, error->second);
  if (manifest.step != step) throw_failure(Kind::corrupt, "{}: of step {}, not {}", path, manifest.step, step);
  return {std::move(manifest.files), std::move(manifest.pieces)};
}

}  // namespace

Part write_part(const Folder& folder, std::span<const TensorFile> files, bool reread) {
  Part part;
  for (const TensorFile& file : files) {
    std::vector<WrittenTensor> each;
    const auto w = write_safetensors({folder, file.name}, file.tensors, file.metadata, {.mode = 0600}, &each);
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

Saved contribute(const ShardedSave& sharded_save, const Manifest& manifest, std::span<const TensorFile> files, const std::string& path) {
  const Span span{"checkpoint", sharded_save.folder};
  const Deadline deadline = Deadline::in(sharded_save.patience);
  Manifest bare{.step = manifest.step, .world_size = sharded_save.ranks};
  Saved saved{{path, manifest}};
  Part part;
  const auto called_off = [&] {
    throw_failure(Kind::aborted, "checkpoint of step {} was called off; rank 0 reports why, and older ones stay", manifest.step);
  };
  try {
    const Folder folder = open(sharded_save);
    part = write_part(folder, files, true);
    for (const ManifestFile& file : part.files) saved.bytes += file.bytes;
    say(folder, sharded_save.rank, bare, part);
  } catch (const Failure& failure) {
    if (!there(sharded_save.folder)) called_off();
    decline(sharded_save, manifest.step, failure.error());
    throw_failure(failure.kind(), "checkpoint of step {}: the part of rank {} was not written, so no part is kept: {}", manifest.step,
                  sharded_save.rank, failure.what());
  }
  while (there(sharded_save.folder)) {
    if (deadline.passed())
      throw_failure(Kind::timeout, "checkpoint of step {}: the part of rank {} is written, but rank 0 did not end the save within {}",
                    manifest.step, sharded_save.rank, format_seconds(sharded_save.patience));
    std::this_thread::sleep_for(kPartPoll);
  }
  if (!is_in(path, manifest.step, part)) called_off();
  return saved;
}

void decline(const ShardedSave& sharded_save, std::int64_t step, const Error& why) noexcept {
  try {
    Manifest bare{.step = step, .world_size = sharded_save.ranks};
    bare.texts[kErrorText] = printable(why.what);
    if (there(sharded_save.folder)) say(open(sharded_save), sharded_save.rank, bare, {});
  } catch (const std::exception& error) {
    log_error("checkpoint of step {}: rank {} failed, and could not write why: {}", step, sharded_save.rank, error.what());
    decline_without_words(sharded_save);
  }
}

std::vector<Part> await_parts(const ShardedSave& sharded_save, std::int64_t step) {
  const Deadline deadline = Deadline::in(sharded_save.patience);
  const Folder folder = open(sharded_save);
  std::vector<Part> parts;
  std::vector<bool> came(static_cast<std::size_t>(sharded_save.ranks), false);
  parts.resize(static_cast<std::size_t>(sharded_save.ranks));
  for (int missing = sharded_save.ranks - 1; missing > 0;) {
    for (int rank = 1; rank < sharded_save.ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (came[at] || !folder.has(part_name(rank))) continue;
      parts[at] = parse_part(folder, rank, step);
      folder.remove_file(part_name(rank));
      came[at] = true;
      --missing;
    }
    if (missing == 0) break;
    if (deadline.passed()) {
      std::vector<int> silent;
      for (int rank = 1; rank < sharded_save.ranks; ++rank)
        if (!came[static_cast<std::size_t>(rank)]) silent.push_back(rank);
      throw_failure(Kind::timeout, "no part from rank {} within {}; a slow disk there, or a rank that cannot see {}?",
                    fmt::join(silent, ", "), format_seconds(sharded_save.patience), sharded_save.folder);
    }
    std::this_thread::sleep_for(kPartPoll);
  }
  return parts;
}

}  // namespace cohort::checkpoint
