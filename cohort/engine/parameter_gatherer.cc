#include "cohort/engine/parameter_gatherer.h"

#include <utility>

#include "cohort/base/trace.h"

namespace cohort::engine {

ParameterGatherer::ParameterGatherer(collective::Communicator& comm, std::vector<const Bucket*> units,
                                     std::unique_ptr<collective::Communicator> thread_comm)
    : comm_(comm),
      units_(std::move(units)),
      thread_comm_(std::move(thread_comm)),
      pool_(comm, units_.front()->device()),
      gathers_(units_.size()) {
  if (thread_comm_)
    thread_ = std::make_unique<JobThread>("parameter gather", [this] {
      thread_comm_->abort({Kind::aborted, "the engine was destroyed while parameters were being gathered", thread_comm_->rank()});
    });
}

void ParameterGatherer::gather(PendingGather& gather_op, collective::Communicator& comm) {
  const Bucket& unit = *units_[gather_op.unit];
  const Span span{"gather parameters", unit.name(), unit.bytes()};
  const OnStreamOf on(unit);  // what reads this memory, or read it before, does so there
  gather_op.memory = pool_.acquire(unit.bytes());
  comm.all_gather(unit.owned_parameters(), unit.all_in(gather_op.memory), {.name = unit.name(), .stream = cuda::current_stream()},
                  unit.counts());
}

void* ParameterGatherer::load(std::size_t unit) {
  if (units_[unit]->placement().ranks == 1) return units_[unit]->owned_parameters().data;
  if (!thread_comm_) {
    gathers_[unit] = std::make_shared<PendingGather>(PendingGather{.unit = unit});
    gather(*gathers_[unit], comm_);
    return gathers_[unit]->memory.data();
  }
  prefetch(unit);
  thread_->await(gathers_[unit]->job);
  return gathers_[unit]->memory.data();
}

void ParameterGatherer::prefetch(std::size_t unit) {
  if (!thread_comm_ || gathers_[unit] || units_[unit]->placement().ranks == 1) return;
  const auto gather_op = gathers_[unit] = std::make_shared<PendingGather>(PendingGather{.unit = unit});
  gather_op->job = thread_->give([this, gather_op] { gather_beside(*gather_op); });
}

// Also where it is not wanted any more: peers take part in it.
void ParameterGatherer::gather_beside(PendingGather& gather_op) {
  gather(gather_op, *thread_comm_);
  const std::lock_guard lock(mutex_);
  gather_op.arrived = true;
  if (gather_op.unwanted) pool_.release(std::move(gather_op.memory));
}

void ParameterGatherer::unload(std::size_t unit) noexcept {
  const auto gather_op = std::exchange(gathers_[unit], nullptr);
  if (!gather_op) return;
  const std::lock_guard lock(mutex_);
  gather_op->unwanted = true;
  if ((gather_op->arrived || !thread_comm_) && gather_op->memory.data() != nullptr) pool_.release(std::move(gather_op->memory));
}

}  // namespace cohort::engine
