#include "cohort/data/loader.h"

#include <algorithm>
#include <limits>

#include "cohort/base/error.h"
#include "cohort/base/trace.h"

namespace cohort::data {
namespace {

constexpr int kMostThreads = 1024, kMostAhead = 65536;
constexpr std::uint64_t kTransformStream = 0x7472616e73666f72ULL;  // apart from the order's numbers of the same seed

LoaderOptions checked(LoaderOptions options, const Dataset& set) {
  Share& share = options.share;
  if (share.samples != 0 && share.samples != set.size()) {
    throw_failure(Kind::usage, "loader: the share is of {} samples, the set has {}; leave samples at 0", share.samples, set.size());
  }
  share.samples = set.size();
  if (options.threads < 0 || options.threads > kMostThreads)
    throw_failure(Kind::usage, "loader: {} threads cannot be; 0 to {}", options.threads, kMostThreads);
  if (options.ahead < 1 || options.ahead > kMostAhead)
    throw_failure(Kind::usage, "loader: {} batches ahead cannot be; 1 to {}", options.ahead, kMostAhead);
  if (set.form().input == Input::tokens && !options.transforms.empty())
    throw_failure(Kind::usage, "loader: transforms are for images and float values, this set has tokens");
  return options;
}

}  // namespace

Loader::Loader(std::shared_ptr<const Dataset> set, LoaderOptions options)
    : set_(std::move(set)), options_(checked(std::move(options), *set_)), form_(std::make_shared<Form>(set_->form())) {
  Share whole = options_.share;
  whole.first = 0;
  whole_steps_ = steps_of(whole);
  first_steps_ = steps_of(options_.share);
  const auto [epoch, step] = options_.start;
  if (epoch < 0 || step < 0 || step > first_steps_ || options_.epochs < 0) {
    throw_failure(Kind::usage, "loader: cannot start at epoch {}, step {}: an epoch has {} steps", epoch, step, first_steps_);
  }
  end_ = options_.epochs == 0 ? std::numeric_limits<std::int64_t>::max() : first_steps_ - step + (options_.epochs - 1) * whole_steps_;
  pool_ = std::make_shared<BatchPool>(*form_, std::min(options_.share.batch, set_->size()));
  slots_.resize(static_cast<std::size_t>(options_.ahead));
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { work(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  slot_free_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::int64_t Loader::steps(std::int64_t epoch) const { return epoch == options_.start.epoch ? first_steps_ : whole_steps_; }

Position Loader::position(std::int64_t number) const {
  const std::int64_t left = first_steps_ - options_.start.step;  // in the first epoch
  if (number < left) return {options_.start.epoch, options_.start.step + number};
  return {options_.start.epoch + 1 + (number - left) / whole_steps_, (number - left) % whole_steps_};
}

std::shared_ptr<const EpochPlan> Loader::plan_of(std::int64_t epoch) {
  const std::lock_guard lock(plans_mutex_);
  for (const auto& one : plans_)
    if (one->epoch() == epoch) return one;
  Share share = options_.share;
  if (epoch != options_.start.epoch) share.first = 0;
  if (plans_.size() == 2) plans_.erase(plans_.begin());
  return plans_.emplace_back(std::make_shared<EpochPlan>(plan(share, epoch)));
}

Batch Loader::make(std::int64_t number, TransformScratch& transform_scratch) {
  const Span span{"make batch"};
  const auto [epoch, step] = position(number);
  const auto epoch_plan = plan_of(epoch);
  Batch batch{.form = form_, .global_count = epoch_plan->total(step), .epoch = epoch, .step = step, .memory = pool_->take()};
  try {
    const CollateOptions how{*set_, options_.transforms, options_.share.seed ^ kTransformStream, epoch, &stop_};
    const auto mine = epoch_plan->mine(step);
    collate(how, mine, {batch.memory->inputs(), batch.labels()}, transform_scratch);
    batch.count = static_cast<std::int64_t>(mine.size());
  } catch (const Failure& failure) {
    Error error = failure.error();
    error.what = fmt::format("epoch {}, step {}: {}", epoch, step, error.what);
    throw Failure{error};
  }
  return batch;
}

void Loader::work() {
  Trace::name_thread("loader");
  TransformScratch transform_scratch;
  std::unique_lock lock(mutex_);
  for (;;) {
    slot_free_.wait(lock, [&] { return stop_ || (claimed_ < end_ && claimed_ < delivered_ + options_.ahead); });
    if (stop_) return;
    const std::int64_t number = claimed_++;
    lock.unlock();
    Slot made{.ready = true, .batch = {}, .error = nullptr};
    try {
      made.batch = make(number, transform_scratch);
    } catch (...) {  // whatever it is, next() throws it to the caller
      made.error = std::current_exception();
    }
    lock.lock();
    slots_[static_cast<std::size_t>(number % options_.ahead)] = std::move(made);
    ready_.notify_one();
  }
}

Batch Loader::next(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (failed_) std::rethrow_exception(failed_);
  if (delivered_ == end_)
    throw_failure(Kind::usage, "loader: all {} epochs have been taken; ask for more, or stop at Loader::steps", options_.epochs);
  Slot taken;
  if (options_.threads == 0) {
    try {
      taken.batch = make(delivered_, scratch_);
    } catch (...) {
      taken.error = std::current_exception();
    }
  } else {
    Slot& slot = slots_[static_cast<std::size_t>(delivered_ % options_.ahead)];
    while (!slot.ready) {
      if (deadline.passed()) {
        const auto [epoch, step] = position(delivered_);
        throw_failure(Kind::timeout,
                      "loader: the batch of epoch {}, step {} was not ready in time ({} threads); is the disk slow? more threads may help",
                      epoch, step, options_.threads);
      }
      deadline.never() ? ready_.wait(lock) : static_cast<void>(ready_.wait_until(lock, deadline.at()));
    }
    taken = std::exchange(slot, {});
  }
  ++delivered_;
  failed_ = taken.error;
  lock.unlock();
  slot_free_.notify_one();
  if (taken.error) std::rethrow_exception(taken.error);
  return std::move(taken.batch);
}

}  // namespace cohort::data
