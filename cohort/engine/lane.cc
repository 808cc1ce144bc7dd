#include "cohort/engine/lane.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/base/trace.h"
#include "cohort/collective/shared/wait_timer.h"

namespace cohort::engine {

Lane::Lane(int index, SpanComms comms, StepContext context)
    : index_(index), comms_(std::move(comms)), context_(context), thread_([this] { run(); }) {}

Lane::~Lane() {
  bool carrying = false;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    carrying = carrying_ && !failure_;
  }
  changed_.notify_all();
  // Peers may not have come to this bucket, and may never: without this the thread would wait until its deadline.
  if (carrying) comms_.abort({Kind::aborted, "the engine was destroyed in the middle of a step", context_.me});
  thread_.join();
}

void Lane::expect(std::vector<Bucket*> buckets, const ReductionPass& pass) {
  const std::lock_guard lock(mutex_);
  buckets_ = std::move(buckets);
  ready_.assign(buckets_.size(), false);
  reports_.clear();
  pass_ = pass;
  next_ = 0;
}

void Lane::ready(const Bucket* bucket) {
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find(buckets_.begin(), buckets_.end(), bucket);
    if (at == buckets_.end()) return;
    ready_[static_cast<std::size_t>(at - buckets_.begin())] = true;
  }
  changed_.notify_all();
}

std::vector<BucketReport> Lane::await() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || next_ == buckets_.size(); });  // every collective inside has its deadline
  if (failure_) std::rethrow_exception(failure_);
  return std::move(reports_);
}

void Lane::await_buffer(const std::function<bool()>& buffer_free) {
  const collective::WaitTimer here;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || next_ == buckets_.size() || !ready_[next_] || buffer_free(); });
}

void Lane::run() {
  Trace::name_thread(fmt::format("lane {}", index_));
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || (!failure_ && next_ < buckets_.size() && ready_[next_]); });
    if (stop_) return;
    Bucket& bucket = *buckets_[next_];
    const ReductionPass pass = pass_;
    carrying_ = true;
    lock.unlock();
    BucketReport report;
    std::exception_ptr failure;
    try {
      report = carry(bucket, context_, {.comm = &comms_.of(bucket), .mean_of = context_.mean_of}, pass);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    carrying_ = false;
    if (failure) {
      failure_ = failure;
    } else {
      reports_.push_back(std::move(report));
      ++next_;
    }
    changed_.notify_all();
  }
}

}  // namespace cohort::engine
