// Fencing of a folder of checkpoints: which process may publish into it when an elastic job has started again from what is there.
// Its last writer may have been taken for lost while it wrote: when it resumes, what it publishes would be newer than what the job went on
// from, and the next start would take it. So a job that begins from disk raises the fence first, and looks for the newest checkpoint then;
// a writer of an earlier epoch, or of another job, has published before that, or never will. The file is <folder>/.fence.
// Owner: values. Threads: any. Failure: Kind::aborted for a process that is fenced off, Kind::timeout where another holds the lock for
// 10 s, Kind::corrupt where .fence is a link or no regular file, Kind::system naming the path.
#pragma once
#include <cstdint>
#include <string>

#include "cohort/base/fd.h"

namespace cohort::checkpoint {

struct Fence {
  std::string job{};  // empty: a run with a fixed number of ranks, which has no fence
  std::uint32_t epoch = 0;
  bool operator==(const Fence&) const = default;
};

void raise_fence(const std::string& folder, const Fence& to);

// While it lives no fence is raised.
class FenceLock {
 public:
  FenceLock(const std::string& folder, const Fence& mine);

 private:
  Fd lock_;
};

}  // namespace cohort::checkpoint
