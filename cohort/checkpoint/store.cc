// Writing side of a Store.
#include "cohort/checkpoint/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/base/trace.h"
#include "cohort/checkpoint/regular_file.h"
#include "cohort/checkpoint/sharded_save.h"
#include "cohort/checkpoint/staging_directory.h"

namespace cohort::checkpoint {
namespace {

namespace fs = std::filesystem;

void check_names(std::span<const TensorFile> files) {
  std::set<std::string_view> names;
  for (const TensorFile& file : files) {
    if (!is_file_name(file.name)) throw_failure(Kind::usage, "checkpoint: '{}' is no name for a file", printable(file.name));
    if (!names.insert(file.name).second) throw_failure(Kind::usage, "checkpoint: two files are called '{}'", file.name);
  }
}

std::string what_is_left(const Store& store) {
  try {
    const auto listed = store.list();
    return listed.empty() ? "there is no older one" : fmt::format("the newest there is step {}", listed.front().step);
  } catch (const Failure& failure) {
    return failure.what();
  }
}

}  // namespace

Store::Store(std::string folder, StoreOptions options) : folder_(std::move(folder)), options_(std::move(options)) {
  if (options_.keep < 1) throw_failure(Kind::usage, "checkpoints: keep={} would keep none; at least 1", options_.keep);
  while (folder_.size() > 1 && folder_.ends_with('/')) folder_.pop_back();
  if (folder_.empty()) throw_failure(Kind::usage, "checkpoints: no folder given");
  if (!options_.fence.job.empty()) jobs_->insert(options_.fence.job);
  if (options_.prepared) prepare();
}

void Store::prepare() {
  const Folder folder = make_durable_folder(folder_, own());
  remove_stale_staging(folder);
  if (!options_.fence.job.empty()) note_jobs(folder);
}

void Store::note_jobs(const Folder& folder) {
  for (const Listed& listed : list(folder)) try {
      const Manifest manifest = read_manifest(folder.inner(step_name(listed.step)), listed.step);
      if (const auto job = manifest.texts.find(kJobText); job != manifest.texts.end()) jobs_->insert(job->second);
    } catch (const Failure&) {  // damaged: whoever wrote it
    }
}

bool Store::may_remove(const Manifest& manifest) const {
  const auto job = manifest.texts.find(kJobText);
  return jobs_->empty() || job == manifest.texts.end() || jobs_->contains(job->second);
}

Saved Store::save(Manifest manifest, std::span<const TensorFile> files) const {
  return guarded(std::move(manifest), files, [&](Saved& saved) {
    StagingDirectory staging(staging_path(folder_, saved.checkpoint.manifest.step), own());
    saved.checkpoint.manifest.files = write_files(staging.folder(), files);
    return complete(staging, saved);
  });
}

Saved Store::save(Manifest manifest, std::span<const TensorFile> files, StagingDirectory& staging, const ShardedSave& sharded_save) const {
  return guarded(std::move(manifest), files, [&](Saved& saved) {
    Manifest& kept = saved.checkpoint.manifest;
    Part mine = write_part(staging.folder(), files, options_.reread);
    kept.files = std::move(mine.files);
    kept.pieces = std::move(mine.pieces);
    for (Part& part : await_parts(sharded_save, kept.step)) {
      std::move(part.files.begin(), part.files.end(), std::back_inserter(kept.files));
      std::move(part.pieces.begin(), part.pieces.end(), std::back_inserter(kept.pieces));
    }
    assemble(kept.pieces, staging.path());  // ranks that disagree on their parts: no checkpoint
    return complete(staging, saved);
  });
}

Saved Store::guarded(Manifest manifest, std::span<const TensorFile> files, const std::function<Folder(Saved&)>& make) const {
  const Span span{"checkpoint", folder_};
  Saved saved{{fmt::format("{}/{}", folder_, step_name(manifest.step)), std::move(manifest)}};
  const auto step = saved.checkpoint.manifest.step;
  check_names(files);
  if (!options_.fence.job.empty()) saved.checkpoint.manifest.texts[kJobText] = options_.fence.job;
  format_manifest(saved.checkpoint.manifest);  // refuses what cannot be written, before gigabytes are
  std::optional<Folder> folder;
  try {
    if (const auto there = Folder::if_there(folder_, own())) check_fence(*there, options_.fence);  // else this save makes it again
    folder = make(saved);
  } catch (const Failure& failure) {
    const auto* hint = failure.kind() == Kind::system ? "; free space or repair the disk, and the next one may succeed" : "";
    throw_failure(failure.kind(), "checkpoint of step {} in {} was not saved: {}; {}{}", step, folder_, failure.what(), what_is_left(*this),
                  hint);
  }
  for (const ManifestFile& file : saved.checkpoint.manifest.files) saved.bytes += file.bytes;
  prune(*folder, saved);
  return saved;
}

// All files are there: the manifest, then the name.
Folder Store::complete(StagingDirectory& staging, const Saved& saved) const {
  const Manifest& kept = saved.checkpoint.manifest;
  const auto text = format_manifest(kept);
  Output output({staging.folder(), std::string(kManifestName)}, {.hash = false, .sync = true, .mode = 0600});
  output.write(std::as_bytes(std::span(text)));
  output.finish();
  staging.folder().sync();
  // Older ones go only after a successor that is known to hold; of a save by several ranks each has read its own files back.
  if (!kept.pieces.empty()) read_manifest(staging.folder(), kept.step);
  if (kept.pieces.empty() && options_.reread) check_digests(staging.folder(), kept);
  {
    const FenceLock lock_fence(staging.above(), options_.fence);        // for no longer than a rename takes: fence.cc
    if (!publish(staging, step_name(kept.step))) staging.moved_away();  // else it now holds the one that was replaced
  }
  staging.above().sync();  // before what was replaced is removed
  return staging.above();
}

std::vector<ManifestFile> Store::write_files(const Folder& into, std::span<const TensorFile> files) const {
  std::vector<ManifestFile> written;
  for (const TensorFile& file : files) {
    const auto w = write_safetensors({into, file.name}, file.tensors, file.metadata, {.mode = 0600});
    written.push_back({file.name, w.bytes, w.sha256});
  }
  return written;
}

bool Store::publish(const StagingDirectory& staging, const std::string& name) const {
  const int folder = staging.above().fd();
  const auto path = staging.above().path_of(name);
  const auto rename_to = [&](unsigned flags) { return ::renameat2(folder, staging.name().c_str(), folder, name.c_str(), flags) == 0; };
  if (rename_to(RENAME_NOREPLACE)) return false;
  if (errno == EINVAL || errno == ENOSYS) {  // no flags on this file system; plain rename refuses a folder that is not empty
    if (::renameat(folder, staging.name().c_str(), folder, name.c_str()) == 0) return false;
  }
  if (errno != EEXIST && errno != ENOTEMPTY) throw_system(fmt::format("rename {} to {}", staging.path(), path));
  // The step is there already, from before a restart. Both names stay valid at every instant.
  if (rename_to(RENAME_EXCHANGE)) return true;
  throw_system(fmt::format("{} is there already, and this file system cannot exchange folders; move it away. rename", path));
}

// Counts whole checkpoints from the newest down; what comes after the last one to keep goes. The one just saved stays in any case.
void Store::prune(const Folder& folder, Saved& saved) const {
  try {
    int whole = 0;
    std::vector<Listed> old;
    for (const Listed& listed : list(folder)) {
      const bool beyond = whole >= options_.keep && listed.step != saved.checkpoint.manifest.step;
      try {
        if (!may_remove(read_manifest(folder.inner(step_name(listed.step)), listed.step))) continue;
        beyond ? old.push_back(listed) : void(++whole);
      } catch (const Failure& failure) {
        if (beyond) {
          old.push_back(listed);
          continue;
        }
        saved.warnings.push_back(fmt::format("{} is damaged and does not count among those to keep: {}", listed.path, failure.what()));
      }
    }
    for (const Listed& listed : old) remove_old(folder, listed, saved);
  } catch (const Failure& failure) {  // the new checkpoint is safe whatever became of the old ones
    saved.warnings.push_back(fmt::format("older checkpoints stay: {}", failure.what()));
  }
  for (const auto& warning : saved.warnings) log_warning("{}", warning);
}

void Store::remove_old(const Folder& folder, const Listed& old, Saved& saved) const {
  const std::string name = step_name(old.step);
  const Fd lock{::openat(folder.fd(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  if (lock) ::flock(lock.get(), LOCK_EX | LOCK_NB);  // a Store that starts meanwhile leaves the rest to us
  // Out of sight in one instant: a crash half way leaves a temporary, not half a checkpoint.
  const std::string aside = fs::path(staging_path(folder_, old.step)).filename().string() + "-old";
  {
    const FenceLock lock_fence(folder, options_.fence);
    folder.rename(name, aside);
  }
  if (remove_tree({folder, aside}) && folder.has(aside))  // a Store that started meanwhile may have removed it
    saved.warnings.push_back(fmt::format("{}, removed, still takes space as {}", old.path, folder.path_of(aside)));
  saved.removed.push_back(old.path);
}

std::string Store::set_aside(std::int64_t step, std::string_view word) const {
  const Folder folder = open();
  const std::string name = fmt::format("{}-{:08}", word, step);
  const FenceLock lock_fence(folder, options_.fence);
  if (const auto error = folder.has(name) ? remove_tree({folder, name}) : std::error_code{})
    throw_failure(Kind::system, "cannot remove {}: {}", folder.path_of(name), error.message());
  folder.rename(step_name(step), name);
  folder.sync();
  return folder.path_of(name);
}

}  // namespace cohort::checkpoint
