// StagingDirectory: where a checkpoint is written before it is renamed to its final name: `.tmp-<step>-<pid>`, and the removal of those
// whose process died. It holds a lock on its folder, which ends with the process however that ends, so that a Store which starts beside it
// knows which are in use, also across containers that reuse pids. Where a file system has no such locks the pid in the name decides.
// Owner: Store::save. Threads: one each. Failure: Kind::system naming the path.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "cohort/base/folder.h"

namespace cohort::checkpoint {

std::string staging_path(const std::string& folder, std::int64_t step);  // "<folder>/.tmp-1200-4711"

class StagingDirectory {
 public:
  // Makes the folder it is in again where that was removed. own: parts of that folder's path that are no links (base/folder.h).
  explicit StagingDirectory(const std::string& path, int own = 0);
  ~StagingDirectory();  // removes whatever is under its path
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;
  const Folder& folder() const { return *folder_; }  // itself: where files are written
  const Folder& above() const { return above_; }     // the folder it is in
  const std::string& name() const { return name_; }  // there
  std::string path() const { return above_.path_of(name_); }
  void moved_away() { ours_ = false; }  // it was renamed: there is nothing to remove

 private:
  bool make();

  const Folder above_;
  std::string name_;              // with a number at its end when the first was removed by another process
  std::optional<Folder> folder_;  // locked
  bool ours_ = false;
};

// Removes a staging directory in one step (by a rename), so that whoever opens it by its path from now on makes no new file there.
void abandon_staging(const FileAt& staging) noexcept;

// Removes the staging directories in this folder that no running process has locked.
void remove_stale_staging(const Folder& folder);

// mkdir -p with mode 0700, each new name made durable in the folder above it, or a power cut could lose a whole run. own: as Folder's.
Folder make_durable_folder(const std::string& path, int own = 0);

}  // namespace cohort::checkpoint
