// ParameterGatherer gathers whole units of parameters of which every rank keeps a piece (stage 3): an all-gather when a block is about to
// run, into memory of a pool that it has until the block is done. With a thread, the next block's parameters are gathered while this one
// computes. Every rank runs the same blocks in the same order, so the all-gathers match; a rank with an empty batch runs them on it.
// Owner: Engine. Threads: load, prefetch and unload from the one that trains; a thread of its own where asked for, with a communicator of
// its own. Failure: load() throws what the all-gather threw, and again ever after.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "cohort/engine/bucket.h"
#include "cohort/engine/job_thread.h"
#include "cohort/nn/unshard/unit.h"

namespace cohort::engine {

class ParameterGatherer final : public nn::UnitLoader {
 public:
  // units: borrowed, stage 3. thread_comm: the communicator of the thread; nullptr: no thread, gathers run when needed, over `comm`.
  ParameterGatherer(collective::Communicator& comm, std::vector<const Bucket*> units,
                    std::unique_ptr<collective::Communicator> thread_comm);

  void* load(std::size_t unit) override;
  void prefetch(std::size_t unit) override;
  void unload(std::size_t unit) noexcept override;
  std::size_t bytes() const { return pool_.bytes(); }  // of gathered parameters, at most so far

 private:
  struct PendingGather {
    std::size_t unit = 0;
    std::int64_t job = 0;  // of the thread
    collective::Region memory;
    bool arrived = false, unwanted = false;  // guarded by mutex_
  };
  void gather(PendingGather& gather_op, collective::Communicator& comm);
  void gather_beside(PendingGather& gather_op);

  collective::Communicator& comm_;
  const std::vector<const Bucket*> units_;
  const std::unique_ptr<collective::Communicator> thread_comm_;
  sync::BufferPool pool_;
  std::vector<std::shared_ptr<PendingGather>> gathers_;  // by unit; shared with the thread's jobs
  std::mutex mutex_;
  std::unique_ptr<JobThread> thread_;  // last: its jobs use all else
};

}  // namespace cohort::engine
