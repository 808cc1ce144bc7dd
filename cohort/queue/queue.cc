#include "cohort/queue/queue.h"

#include "cohort/queue/lane.h"

namespace cohort::queue {

Queue::Queue(std::unique_ptr<collective::Communicator> communicator, QueueOptions options) {
  if (!communicator) throw_failure(Kind::usage, "a queue needs a communicator; this rank is not a member of the set");
  const auto make = options.mode == Mode::in_order ? in_order_lane : negotiated_lane;
  lane_ = make(std::move(communicator), std::move(options));
  lane_->start();
}

Queue::~Queue() { lane_->close(); }

Rank Queue::rank() const { return lane_->communicator().rank(); }

int Queue::size() const { return lane_->communicator().size(); }

Handle Queue::submit(Operation operation) { return Handle{lane_->submit(std::move(operation))}; }

Handle Queue::join() { return Handle{lane_->join()}; }

bool Queue::poll(const Handle& handle) const {
  if (!handle) throw_failure(Kind::usage, "an empty handle belongs to no operation");
  if (!handle.ticket_->done()) return false;
  handle.ticket_->observe();
  return true;
}

Result Queue::wait(const Handle& handle, Deadline deadline) const {
  if (!handle) throw_failure(Kind::usage, "an empty handle belongs to no operation");
  return lane_->wait(handle.ticket_, deadline);
}

bool Queue::help(const Handle& handle, Deadline look_up) const {
  if (!handle) throw_failure(Kind::usage, "an empty handle belongs to no operation");
  return lane_->help(handle.ticket_, look_up);
}

void Queue::abort(const Error& error) noexcept { lane_->abort(error); }

}  // namespace cohort::queue
