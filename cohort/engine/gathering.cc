#include "cohort/engine/gathering.h"

#include <utility>

#include "cohort/base/trace.h"
#include "cohort/collective/waiting.h"

namespace cohort::engine {

Gathering::Gathering(collective::Communicator& comm, std::vector<const sync::Bucket*> units, std::unique_ptr<collective::Communicator> own)
    : comm_(comm), units_(std::move(units)), own_(std::move(own)), pool_(comm), trips_(units_.size()) {
  if (own_) thread_ = std::thread([this] { run(); });
}

Gathering::~Gathering() {
  if (!thread_.joinable()) return;
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    waits = gathering_ && !failure_;
  }
  changed_.notify_all();
  // Peers may never come to this unit: without this the thread would wait until its deadline.
  if (waits) own_->abort({Kind::aborted, "the engine was given up while parameters were on their way", own_->rank()});
  thread_.join();
}

void Gathering::gather(Trip& trip, collective::Communicator& comm) {
  const sync::Bucket& unit = *units_[trip.unit];
  const Span span{"bring", unit.name(), unit.bytes()};
  trip.memory = pool_.lend(unit.bytes());
  comm.all_gather(unit.owned_parameters(), unit.all_in(trip.memory), {.name = unit.name()}, unit.counts());
}

void* Gathering::bring(std::size_t unit) {
  if (units_[unit]->sharding().ranks == 1) return units_[unit]->owned_parameters().data;
  if (!own_) {
    trips_[unit] = std::make_shared<Trip>(Trip{.unit = unit});
    gather(*trips_[unit], comm_);
    return trips_[unit]->memory.data();
  }
  prefetch(unit);
  const collective::Waiting here;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || trips_[unit]->arrived; });  // the verb inside has its deadline
  if (failure_) std::rethrow_exception(failure_);
  return trips_[unit]->memory.data();
}

void Gathering::prefetch(std::size_t unit) {
  if (!own_ || trips_[unit] || units_[unit]->sharding().ranks == 1) return;
  trips_[unit] = std::make_shared<Trip>(Trip{.unit = unit});
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(trips_[unit]);
  }
  changed_.notify_all();
}

void Gathering::let_go(std::size_t unit) noexcept {
  const auto trip = std::exchange(trips_[unit], nullptr);
  if (!trip) return;
  const std::lock_guard lock(mutex_);
  trip->unwanted = true;
  if ((trip->arrived || !own_) && trip->memory.data() != nullptr) pool_.give_back(std::move(trip->memory));
}

void Gathering::run() {
  Trace::name_thread("gathering");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || (!failure_ && !queue_.empty()); });
    if (stop_) return;
    const auto trip = queue_.front();
    queue_.pop_front();
    gathering_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      gather(*trip, *own_);  // also where nobody wants it any more: peers are in it
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    gathering_ = false;
    failure_ = failure;
    trip->arrived = !failure;
    if (trip->unwanted && trip->memory.data() != nullptr) pool_.give_back(std::move(trip->memory));
    changed_.notify_all();
  }
}

}  // namespace cohort::engine
