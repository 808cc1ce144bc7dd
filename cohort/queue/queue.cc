#include "cohort/queue/queue.h"

#include "cohort/queue/progress_engine.h"

namespace cohort::queue {

Queue::Queue(std::unique_ptr<collective::Communicator> communicator, QueueOptions options) {
  if (!communicator) throw_failure(Kind::usage, "a queue needs a communicator; this rank is not a member of the set");
  const auto make = options.mode == Mode::in_order ? in_order_progress : negotiated_progress;
  progress_ = make(std::move(communicator), std::move(options));
  progress_->start();
}

Queue::~Queue() { progress_->close(); }

Rank Queue::rank() const { return progress_->communicator().rank(); }

int Queue::size() const { return progress_->communicator().size(); }

Handle Queue::submit(Operation operation) { return Handle{progress_->submit(std::move(operation))}; }

Handle Queue::join() { return Handle{progress_->join()}; }

bool Queue::poll(const Handle& handle) const {
  if (!handle) throw_failure(Kind::usage, "an empty handle belongs to no operation");
  if (!handle.submission_->done()) return false;
  handle.submission_->observe();
  return true;
}

Result Queue::wait(const Handle& handle, Deadline deadline) const {
  if (!handle) throw_failure(Kind::usage, "an empty handle belongs to no operation");
  return progress_->wait(handle.submission_, deadline);
}

bool Queue::help(const Handle& handle, Deadline return_by) const {
  if (!handle) throw_failure(Kind::usage, "an empty handle belongs to no operation");
  return progress_->help(handle.submission_, return_by);
}

void Queue::abort(const Error& error) noexcept { progress_->abort(error); }

}  // namespace cohort::queue
