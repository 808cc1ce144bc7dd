#include "cohort/engine/parameter_gatherer.h"

#include <utility>

#include "cohort/base/trace.h"
#include "cohort/collective/shared/wait_timer.h"

namespace cohort::engine {

ParameterGatherer::ParameterGatherer(collective::Communicator& comm, std::vector<const Bucket*> units,
                                     std::unique_ptr<collective::Communicator> thread_comm)
    : comm_(comm), units_(std::move(units)), thread_comm_(std::move(thread_comm)), pool_(comm), gathers_(units_.size()) {
  if (thread_comm_) thread_ = std::thread([this] { run(); });
}

ParameterGatherer::~ParameterGatherer() {
  if (!thread_.joinable()) return;
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    waits = gathering_ && !failure_;
  }
  changed_.notify_all();
  // Peers may never come to this unit: without this the thread would wait until its deadline.
  if (waits) thread_comm_->abort({Kind::aborted, "the engine was destroyed while parameters were being gathered", thread_comm_->rank()});
  thread_.join();
}

void ParameterGatherer::gather(PendingGather& gather_op, collective::Communicator& comm) {
  const Bucket& unit = *units_[gather_op.unit];
  const Span span{"gather parameters", unit.name(), unit.bytes()};
  gather_op.memory = pool_.acquire(unit.bytes());
  comm.all_gather(unit.owned_parameters(), unit.all_in(gather_op.memory), {.name = unit.name()}, unit.counts());
}

void* ParameterGatherer::load(std::size_t unit) {
  if (units_[unit]->placement().ranks == 1) return units_[unit]->owned_parameters().data;
  if (!thread_comm_) {
    gathers_[unit] = std::make_shared<PendingGather>(PendingGather{.unit = unit});
    gather(*gathers_[unit], comm_);
    return gathers_[unit]->memory.data();
  }
  prefetch(unit);
  const collective::WaitTimer here;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || gathers_[unit]->arrived; });  // the collective inside has its deadline
  if (failure_) std::rethrow_exception(failure_);
  return gathers_[unit]->memory.data();
}

void ParameterGatherer::prefetch(std::size_t unit) {
  if (!thread_comm_ || gathers_[unit] || units_[unit]->placement().ranks == 1) return;
  gathers_[unit] = std::make_shared<PendingGather>(PendingGather{.unit = unit});
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(gathers_[unit]);
  }
  changed_.notify_all();
}

void ParameterGatherer::unload(std::size_t unit) noexcept {
  const auto gather_op = std::exchange(gathers_[unit], nullptr);
  if (!gather_op) return;
  const std::lock_guard lock(mutex_);
  gather_op->unwanted = true;
  if ((gather_op->arrived || !thread_comm_) && gather_op->memory.data() != nullptr) pool_.release(std::move(gather_op->memory));
}

void ParameterGatherer::run() {
  Trace::name_thread("parameter gather");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || (!failure_ && !queue_.empty()); });
    if (stop_) return;
    const auto gather_op = queue_.front();
    queue_.pop_front();
    gathering_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      gather(*gather_op, *thread_comm_);  // also where it is not wanted any more: peers take part in it
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    gathering_ = false;
    failure_ = failure;
    gather_op->arrived = !failure;
    if (gather_op->unwanted && gather_op->memory.data() != nullptr) pool_.release(std::move(gather_op->memory));
    changed_.notify_all();
  }
}

}  // namespace cohort::engine
