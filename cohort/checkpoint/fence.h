// Fencing of a folder of checkpoints: which process may publish into it, and remove from it, once another began from what is there.
// Its last writer may have been taken for lost while it wrote: when it resumes, what it publishes would be newer than what the job went on
// from, and the next start would take it. So a job that begins from disk raises the fence first, and looks for the newest checkpoint then;
// a writer of an earlier epoch, or of another job, has published before that, or never will. A job with a fixed number of ranks does so
// when it starts, as epoch 0 of a job of its own (run_lock.h refuses it first if it can tell that another runs). The file is
// <folder>/.fence.
// Owner: values. Threads: any. Failure: Kind::aborted for a process that is fenced off, Kind::timeout where another holds the lock for
// 10 s, Kind::corrupt where .fence is a link or no regular file, Kind::system naming the path.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "cohort/base/fd.h"
#include "cohort/base/folder.h"

namespace cohort::checkpoint {

struct Fence {
  std::string job{};  // empty: no fence
  std::uint32_t epoch = 0;
  bool operator==(const Fence&) const = default;
};

// Kind::aborted once another has raised it.
void check_fence(const Folder& folder, const Fence& mine);

void raise_fence(const Folder& folder, const Fence& to);

// Who raised it last, without a lock: none where it never was, or is being raised now.
std::optional<Fence> raised_fence(const Folder& folder);

// While it lives no fence is raised.
class FenceLock {
 public:
  FenceLock(const Folder& folder, const Fence& mine);

 private:
  Fd lock_;
};

}  // namespace cohort::checkpoint
