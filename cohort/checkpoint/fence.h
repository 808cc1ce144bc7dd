// Who may publish into a folder of checkpoints when an elastic job has begun anew from what lies there.
// Its last writer may have been taken for lost while it wrote: when it comes to itself, what it publishes would be newer than what the job
// went on from, and the next start would take it. So a job that begins from disk raises the fence first, and looks for the newest
// checkpoint then; a writer of an earlier epoch, or of another job, has published before that, or never will. The file is <folder>/.fence.
// Owner: values. Threads: any. Failure: Kind::aborted for whoever is fenced off, Kind::timeout where somebody holds the
// lock for 10 s, Kind::system naming the path.
#pragma once
#include <cstdint>
#include <string>

#include "cohort/base/fd.h"

namespace cohort::checkpoint {

struct Fence {
  std::string job{};  // empty: a run with a fixed number of ranks, which asks nobody
  std::uint32_t epoch = 0;
  bool operator==(const Fence&) const = default;
};

void raise_fence(const std::string& folder, const Fence& to);

// While it lives no fence is raised.
class Passage {
 public:
  Passage(const std::string& folder, const Fence& mine);

 private:
  Fd lock_;
};

}  // namespace cohort::checkpoint
