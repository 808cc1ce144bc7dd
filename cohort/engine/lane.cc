#include "cohort/engine/lane.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/base/trace.h"
#include "cohort/collective/waiting.h"
#include "cohort/collective/walk.h"
#include "cohort/engine/update.h"
#include "cohort/optim/measure.h"

namespace cohort::engine {
namespace {

double since(Clock::time_point start) { return Seconds(Clock::now() - start).count(); }

// This rank's own gradients of all members.
void measure_all(const sync::Bucket& bucket, optim::Measure& found) {
  const auto* const all = static_cast<const std::byte*>(bucket.gradients().data);
  for (const auto& m : bucket.members()) optim::measure(all + m.first * optim::size_of(bucket.real()), m.count, bucket.real(), found);
}

// Of the agreed gradients what falls to this rank: what it owns, and where all own everything an even share of the measuring.
void measure_part(const sync::Bucket& bucket, bool all_own_all, const collective::Communicator& comm, optim::Measure& found) {
  for (const auto& m : bucket.members()) {
    const std::size_t owned = bucket.owned(m).count;
    const int turn = (comm.rank().value + static_cast<int>(m.order)) % comm.size();  // small tensors are no single rank's lot
    const auto part = all_own_all ? collective::part_of(owned, comm.size(), turn, optim::kMeasureBlock) : collective::Range{0, owned};
    const auto* const first = static_cast<const std::byte*>(bucket.gradient(m)) + part.first * optim::size_of(bucket.real());
    optim::measure(first, part.size(), bucket.real(), found);
  }
}

}  // namespace

// The last gradient of the bucket has arrived; buckets go in plan order.
Report carry(sync::Bucket& bucket, const Crew& crew, const sync::Wire& wire, const Sweep& sweep) {
  const Span span{"carry", bucket.name(), bucket.bytes()};
  Report report{.bucket = &bucket};
  const auto start = Clock::now();
  const double waited = collective::waited().count();
  bucket.gather();  // 1 nothing to copy where gradients are views into the bucket, or came as they arrived
  optim::Measure before, after;
  if (crew.measure_before) measure_all(bucket, before);  // the noise of a single rank's gradient, for whoever adapts to it
  crew.strategy.agree(bucket, wire);                     // 2 over the bucket's own wire
  if (sweep.last) bucket.entrust(*wire.comm);            // where each rank has a buddy, its piece goes there too
  report.seconds.wait = collective::waited().count() - waited;
  report.seconds.agree = since(start);
  report.before = before.squared;
  if (!sweep.last) return report;
  if (!crew.early_update || crew.measure_before)
    measure_part(bucket, crew.all_own_all, *wire.comm, after);  // for the vote, while memory is hot
  report.finite = after.finite;
  report.after = after.squared;
  if (crew.early_update) settle(bucket, crew, wire, sweep.step);  // fused: memory is hot, and the step can no longer be called off
  return report;
}

// 4 Only what this rank owns, and what it keeps for the rank before it.
void update(sync::Bucket& bucket, const Crew& crew, const optim::StepInfo& step, const std::vector<bool>& missing) {
  std::vector<void*> state;
  const auto pass = [&](const optim::Slice& slice) {
    crew.in_lane ? crew.rule->update(slice, step) : update_by_all(*crew.rule, slice, step);
  };
  for (const auto& m : bucket.members()) {
    if (!missing.empty() && missing[m.order]) continue;
    pass(bucket.slice(m, state));
    if (bucket.keeps()) pass(bucket.kept_slice(m, state));
  }
  bucket.settled();
}

// The step is committed.
void settle(sync::Bucket& bucket, const Crew& crew, const sync::Wire& wire, const optim::StepInfo& step, const std::vector<bool>& missing) {
  if (crew.rule == nullptr) return;
  const Span span{"settle", bucket.name(), bucket.bytes()};
  update(bucket, crew, step, missing);
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
  const collective::Waiting here;
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
