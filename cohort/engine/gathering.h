// Gathering brings whole units of parameters in of which every rank keeps a piece (stage 3): an all-gather when a block is about to run,
// memory of a pool until it has. With a thread, the next block's parameters travel while this one computes. Every rank runs the same blocks
// in the same order, so gathers meet; a rank with an empty batch runs them on it.
// Owner: Engine. Threads: bring, prefetch and let_go from the one that trains; a thread of its own where asked for, with a communicator of
// its own. Failure: bring() throws what the gather threw, and again ever after.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cohort/nn/unit.h"
#include "cohort/sync/bucket.h"

namespace cohort::engine {

class Gathering final : public nn::Host {
 public:
  // units: borrowed, stage 3. own: a communicator for the thread; nullptr: no thread, gathers run when they are needed, over `comm`.
  Gathering(collective::Communicator& comm, std::vector<const sync::Bucket*> units, std::unique_ptr<collective::Communicator> own);
  ~Gathering() override;

  void* bring(std::size_t unit) override;
  void prefetch(std::size_t unit) override;
  void let_go(std::size_t unit) noexcept override;
  std::size_t bytes() const { return pool_.bytes(); }  // of gathered parameters, at most so far

 private:
  struct Trip {
    std::size_t unit = 0;
    collective::Region memory;
    bool arrived = false, unwanted = false;
  };
  void gather(Trip& trip, collective::Communicator& comm);
  void run();

  collective::Communicator& comm_;
  const std::vector<const sync::Bucket*> units_;
  const std::unique_ptr<collective::Communicator> own_;
  sync::Pool pool_;
  std::vector<std::shared_ptr<Trip>> trips_;  // by unit; shared with the thread's queue
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Trip>> queue_;  // guarded by mutex_, as all below
  bool stop_ = false, gathering_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace cohort::engine
