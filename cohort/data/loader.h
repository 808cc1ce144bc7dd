// Batches in order, made ahead of the training that takes them.
//   Loader loader(train, {.share = {.ranks = n, .rank = me, .batch = 64, .seed = 1}, .transforms = Transforms::parse("flip, normalise",
//   *train)}); for (;;) { Batch batch = loader.next(Deadline::in(60s)); ... }
// Epoch follows epoch without a gap. The batches are the same, bit for bit, whatever the number of threads; with threads = 0 next() makes
// them itself. (epoch, step) of a batch is the position to come back to: start = {epoch, step + 1} goes on after it.
// Owner: one Loader per rank and split; batches outlive it. Threads: next() from one thread; 0..k threads of its own, which sleep when
// they are `ahead` batches in front. Failure: that of a thread is thrown by the next() whose batch it was, with epoch, step, sample and
// place, and again by every later one. The destructor waits for at most one sample of each thread.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/data/batch.h"
#include "cohort/data/plan.h"

namespace cohort::data {

struct Position {
  std::int64_t epoch = 0, step = 0;
};

struct LoaderOptions {
  Share share;  // samples: 0, or the size of the set; first counts for the first epoch only
  Transforms transforms;
  Position start;
  std::int64_t epochs = 0;  // how many, with the one of start; 0: no end
  int threads = 1;
  int ahead = 4;  // batches ready or in the making, at most
};

class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> set, LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Kind::timeout when it is not ready by then (it comes at the next call); Kind::usage after the last of `epochs`.
  Batch next(Deadline deadline);
  std::int64_t steps(std::int64_t epoch) const;  // of this epoch; the first may be shorter, see Share::first
  std::size_t batches_allocated() const { return pool_->made(); }

 private:
  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };
  Position position(std::int64_t number) const;  // of the batch with this number, from 0
  std::shared_ptr<const EpochPlan> plan_of(std::int64_t epoch);
  Batch make(std::int64_t number, TransformScratch& transform_scratch);
  void work();

  const std::shared_ptr<const Dataset> set_;
  const LoaderOptions options_;
  const std::shared_ptr<const Form> form_;
  std::int64_t first_steps_ = 0, whole_steps_ = 0, end_ = 0;  // end_: the number after the last batch
  std::shared_ptr<BatchPool> pool_;

  std::mutex plans_mutex_;
  std::vector<std::shared_ptr<const EpochPlan>> plans_;  // guarded by plans_mutex_: at most two

  std::mutex mutex_;
  std::condition_variable slot_free_, ready_;
  std::vector<Slot> slots_;     // guarded by mutex_: number modulo ahead
  std::int64_t claimed_ = 0;    // guarded by mutex_: batches given to threads
  std::int64_t delivered_ = 0;  // guarded by mutex_: batches given to the caller
  std::exception_ptr failed_;   // guarded by mutex_
  std::atomic<bool> stop_{false};

  TransformScratch scratch_;  // of the thread that calls next()
  std::vector<std::thread> threads_;
};

}  // namespace cohort::data
