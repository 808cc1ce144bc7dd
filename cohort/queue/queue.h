// Asynchronous collectives: submit now, wait or poll later. Overlap in training and the Python package are built on it.
// Two modes. in_order: every rank submits the same operations in the same order; no messages but those of the collectives are sent.
// negotiated: ranks may submit in any order under names; rank 0 decides what runs next (see negotiator.h).
// Owner: the caller; it takes the communicator, which nothing else may use any more. One progress thread per queue.
// Threads: any, for every method; an operation never completes inside submit().
// Failure: an operation's own (mismatch, cannot be joined) is thrown by its wait() and leaves the queue usable; anything worse (a lost
// peer, an abort, a timeout inside a collective) is final: every operation in flight and every later call fails with that root cause.
// Destruction waits `drain` for what can still finish, then aborts the rest; handles stay valid and give the outcome.
// To add a collective: operation.cc and execute.cc. To add a mode: a ProgressEngine.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "cohort/collective/communicator.h"
#include "cohort/queue/operation.h"
#include "cohort/queue/submission.h"

namespace cohort::queue {

enum class Mode : std::uint8_t { in_order, negotiated };

// One moment in the life of an operation on this rank, for timelines. The names are borrowed until the call returns.
struct Event {
  enum class What : std::uint8_t { submitted, started, completed, cycle };  // cycle: a response of rank 0 has come; no name
  What what = What::cycle;
  std::string_view name{};
  Collective collective = Collective::barrier;
};

// fusion_bytes, cache_names and warn_after matter on rank 0, which decides for all.
struct QueueOptions {
  Mode mode = Mode::in_order;
  std::size_t fusion_bytes = 64_MiB;  // most bytes in one fused all-reduce; 0: no fusion
  std::size_t cache_names = 1024;     // names that are sent as ids
  Seconds warn_after{5};              // a name some ranks have not submitted is reported after this; 0: never
  Seconds shutdown_after{0};          // and ends the queue on every rank after this; 0: never
  std::string limit_name{};           // what sets shutdown_after, for errors
  Seconds name_window{0.005};         // an unobserved outcome keeps its name this long
  bool factors_in_type = false;       // a factor is rounded to the elements' type first, as Horovod does; else products are rounded once
  Seconds drain{2};                   // how long destruction waits for what is in flight
  std::vector<Rank> rank_labels{};    // the ranks' numbers in reports and errors (a process set: those in the world)
  // What happens to operations, as it happens, on any thread. It must not throw, nor call the queue.
  std::function<void(const Event&)> on_event{};
  std::function<void(const std::string&)> report{};  // stall reports, on rank 0's progress thread; empty: the log
};

class ProgressEngine;

class Queue {
 public:
  Queue(std::unique_ptr<collective::Communicator> communicator, QueueOptions options = {});
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Rank rank() const;
  int size() const;

  Handle submit(Operation operation);  // Kind::usage at once: a bad argument, a name in flight
  // This rank has no more data for now: it gives zeros to the sums and averages of the others until all ranks have joined.
  // Negotiated queues only. The result has the rank that joined last.
  Handle join();
  bool poll(const Handle& handle) const;
  // The outcome, as often as asked. Kind::timeout when the deadline passes first: the operation goes on.
  Result wait(const Handle& handle, Deadline deadline = {}) const;
  // For callers that must return now and then (to check signals): makes progress on the operation as wait() without a deadline does, until
  // it is done or `return_by` has passed; a running collective is finished first. Returns whether it is done; wait() gives the outcome. A
  // rank 0 that says nothing for longer than shutdown_after ends the queue here.
  bool help(const Handle& handle, Deadline return_by) const;
  void abort(const Error& error) noexcept;

 private:
  std::unique_ptr<ProgressEngine> progress_;
};

}  // namespace cohort::queue
