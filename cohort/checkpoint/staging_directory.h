// StagingDirectory: where a checkpoint is written before it is renamed to its final name: `.tmp-<step>-<pid>`, and the removal of those
// whose process died. It holds a lock on its folder, which ends with the process however that ends, so that a Store which starts beside it
// knows which are in use, also across containers that reuse pids. Where a file system has no such locks the pid in the name decides.
// Owner: Store::save. Threads: one each. Failure: Kind::system naming the path.
#pragma once
#include <cstdint>
#include <string>

#include "cohort/base/fd.h"

namespace cohort::checkpoint {

std::string staging_path(const std::string& folder, std::int64_t step);  // "<folder>/.tmp-1200-4711"

class StagingDirectory {
 public:
  explicit StagingDirectory(const std::string& path);  // makes the folder it is in again where that was removed
  ~StagingDirectory();                                 // removes whatever is under its path
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;
  const std::string& path() const { return path_; }
  void moved_away() { ours_ = false; }  // it was renamed: there is nothing to remove

 private:
  bool make();
  void make_folder();

  std::string path_;  // with a number at its end when the first was removed by another process
  Fd lock_;
  bool ours_ = false;
};

// Removes a staging directory in one step (by a rename), so that a process that still writes into it makes no new file there.
void abandon_staging(const std::string& path) noexcept;

// Removes the staging directories in this folder that no running process has locked.
void remove_stale_staging(const std::string& folder);

// mkdir -p with mode 0700, each new name made durable in the folder above it, or a power cut could lose a whole run.
void make_durable_folder(const std::string& path);

}  // namespace cohort::checkpoint
