// Where a checkpoint grows before it gets its name: `.tmp-<step>-<pid>`, and what becomes of those whose process died.
// A Workshop holds a lock on its folder, which ends with the process however that ends, so that a Store which starts beside it can tell
// the living from the dead, also across containers that reuse pids. Where a file system has no such locks the pid in the name speaks.
// Owner: Store::save. Threads: one each. Failure: Kind::system naming the path.
#pragma once
#include <cstdint>
#include <string>

#include "cohort/base/fd.h"

namespace cohort::checkpoint {

std::string workshop_path(const std::string& folder, std::int64_t step);  // "<folder>/.tmp-1200-4711"

class Workshop {
 public:
  explicit Workshop(const std::string& path);
  ~Workshop();  // removes whatever stands under its path
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;
  const std::string& path() const { return path_; }
  void moved_away() { ours_ = false; }  // renamed: nothing of ours is left there

 private:
  bool make();

  std::string path_;  // with a number behind it when the first was taken from us
  Fd lock_;
  bool ours_ = false;
};

// Takes a workshop away in one step, so that whoever still writes into it finds it gone and makes no new file in it.
void abandon_workshop(const std::string& path) noexcept;

// Removes the workshops in this folder that no living process holds.
void sweep_workshops(const std::string& folder);

// mkdir -p with mode 0700, each new name made durable in the folder above it, or a power cut could take a whole run away.
void make_durable_folder(const std::string& path);

}  // namespace cohort::checkpoint
