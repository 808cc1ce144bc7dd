// Asynchronous verbs: submit now, wait or poll later. What overlap in training and the Python package stand on.
// Two modes. in_order: every rank submits the same operations in the same order; nothing is said about them but the verbs themselves.
// negotiated: ranks may submit in any order under names; rank 0 says what runs next (see negotiator.h).
// Owner: the caller; it takes the communicator, whose own verbs are no longer for anyone else. One thread, the lane, per queue.
// Threads: any, for every method; an operation never completes inside submit().
// Failure: an operation's own (mismatch, cannot be joined) is thrown by its wait() and leaves the queue usable; anything worse (a lost
// peer, an abort, a timeout inside a verb) is final: every operation in flight and every later call fails with that root cause.
// Destruction waits `drain` for what can still finish, then gives up on the rest; handles stay valid and tell the outcome.
// To add a verb: operation.cc and execute.cc. To add a mode: a Lane.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "cohort/collective/communicator.h"
#include "cohort/queue/operation.h"
#include "cohort/queue/ticket.h"

namespace cohort::queue {

enum class Mode : std::uint8_t { in_order, negotiated };

// One moment in the life of an operation on this rank, for timelines. The names are borrowed until the call returns.
struct Event {
  enum class What : std::uint8_t { submitted, started, landed, cycle };  // cycle: rank 0 has spoken; no name
  What what = What::cycle;
  std::string_view name{};
  Verb verb = Verb::barrier;
};

// fusion_bytes, cache_names and the stall times matter on rank 0, which decides for all.
struct QueueOptions {
  Mode mode = Mode::in_order;
  std::size_t fusion_bytes = 64_MiB;  // most bytes in one fused all-reduce; 0: no fusion
  std::size_t cache_names = 1024;     // names that travel as ids
  Seconds warn_after{5};              // a name some ranks have not submitted is reported after this; 0: never
  Seconds shutdown_after{0};          // and ends the queue on every rank after this; 0: never
  Seconds name_window{0.005};         // an unobserved outcome keeps its name this long
  Seconds drain{2};                   // how long destruction waits for what is in flight
  std::vector<Rank> spoken{};         // what the ranks are called in reports and refusals (a process set: their numbers in the world)
  // What happens to operations, as it happens, on any thread. It must not throw, nor call the queue.
  std::function<void(const Event&)> watch{};
  std::function<void(const std::string&)> report{};  // stall reports, on rank 0's lane; empty: the log
};

class Lane;

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
  // Negotiated queues only. The result tells who joined last.
  Handle join();
  bool poll(const Handle& handle) const;
  // The outcome, as often as asked. Kind::timeout when the deadline passes first: the operation goes on.
  Result wait(const Handle& handle, Deadline deadline = {}) const;
  // For callers that must look up now and then (signals): works for the operation as wait() without a deadline does, until it is done or
  // `look_up` has passed; a verb under way is finished first. Says whether it is done; the outcome is wait()'s to tell.
  bool help(const Handle& handle, Deadline look_up) const;
  void abort(const Error& error) noexcept;

 private:
  std::unique_ptr<Lane> lane_;
};

}  // namespace cohort::queue
