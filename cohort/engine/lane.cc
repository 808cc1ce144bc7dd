#include "cohort/engine/lane.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/base/trace.h"
#include "cohort/collective/waiting.h"
#include "cohort/optim/measure.h"

namespace cohort::engine {
namespace {

double since(Clock::time_point start) { return Seconds(Clock::now() - start).count(); }

// This rank's gradients of all members, or the agreed ones that it owns.
bool measure(const sync::Bucket& bucket, bool owned, optim::ExactSum& squared) {
  optim::Measure found;
  const auto* const all = static_cast<const std::byte*>(bucket.gradients().data);
  for (const auto& m : bucket.members()) {
    if (owned) {
      optim::measure(bucket.gradient(m), bucket.owned(m).count, bucket.real(), found);
    } else {
      optim::measure(all + m.first * optim::size_of(bucket.real()), m.count, bucket.real(), found);
    }
  }
  squared = found.squared;
  return found.finite;
}

}  // namespace

// The last gradient of the bucket has arrived; buckets go in plan order.
Report carry(sync::Bucket& bucket, const Crew& crew, const sync::Wire& wire, const Sweep& sweep) {
  const Span span{"carry", bucket.name(), bucket.bytes()};
  Report report{.bucket = &bucket};
  const auto start = Clock::now();
  const double waited = collective::waited().count();
  bucket.gather();  // 1 nothing to copy where gradients are views into the bucket, or came as they arrived
  if (crew.measure_before) measure(bucket, false, report.before);  // the noise of a single rank's gradient, for whoever adapts to it
  crew.strategy.agree(bucket, wire);                               // 2 over the bucket's own wire
  report.seconds.wait = collective::waited().count() - waited;
  report.seconds.agree = since(start);
  if (!sweep.last) return report;
  if (!crew.early_update || crew.measure_before) report.finite = measure(bucket, true, report.after);  // for the vote, while memory is hot
  if (crew.early_update) settle(bucket, crew, wire, sweep.step);  // fused: memory is hot, and the step can no longer be called off
  return report;
}

// The step is committed.
void settle(sync::Bucket& bucket, const Crew& crew, const sync::Wire& wire, const optim::StepInfo& step, const std::vector<bool>& missing) {
  if (crew.rule == nullptr) return;
  const Span span{"settle", bucket.name(), bucket.bytes()};
  std::vector<void*> state;
  for (const auto& m : bucket.members())
    if (missing.empty() || !missing[m.order]) crew.rule->update(bucket.slice(m, state), step);  // 4 only what this rank owns
  bucket.settled();
  crew.strategy.publish(bucket, wire);  // 5 fresh parameters reach their readers
}

Lane::Lane(int index, std::unique_ptr<collective::Communicator> comm, Crew crew)
    : index_(index), comm_(std::move(comm)), crew_(crew), thread_([this] { run(); }) {}

Lane::~Lane() {
  bool carrying = false;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    carrying = carrying_ && !failure_;
  }
  changed_.notify_all();
  // Peers may not have come to this bucket, and may never: without this the thread would wait until its deadline.
  if (carrying) comm_->abort({Kind::aborted, "the engine was given up in the middle of a step", comm_->rank()});
  thread_.join();
}

void Lane::expect(std::vector<sync::Bucket*> buckets, const Sweep& sweep) {
  const std::lock_guard lock(mutex_);
  buckets_ = std::move(buckets);
  ready_.assign(buckets_.size(), false);
  reports_.clear();
  sweep_ = sweep;
  next_ = 0;
}

void Lane::ready(const sync::Bucket* bucket) {
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find(buckets_.begin(), buckets_.end(), bucket);
    if (at == buckets_.end()) return;
    ready_[static_cast<std::size_t>(at - buckets_.begin())] = true;
  }
  changed_.notify_all();
}

std::vector<Report> Lane::await() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || next_ == buckets_.size(); });  // every verb inside has its deadline
  if (failure_) std::rethrow_exception(failure_);
  return std::move(reports_);
}

void Lane::await_room(const std::function<bool()>& room) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || next_ == buckets_.size() || !ready_[next_] || room(); });
}

void Lane::run() {
  Trace::name_thread(fmt::format("lane {}", index_));
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || (!failure_ && next_ < buckets_.size() && ready_[next_]); });
    if (stop_) return;
    sync::Bucket& bucket = *buckets_[next_];
    const Sweep sweep = sweep_;
    carrying_ = true;
    lock.unlock();
    Report report;
    std::exception_ptr failure;
    try {
      report = carry(bucket, crew_, {comm_.get(), {}}, sweep);
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
