// A worker's side of an elastic job: the connection to the coordinator with its heartbeats, and the StepCommit (step_commit.h), behind one
// mutex. A thread of its own receives, so that a seal takes effect while the training thread computes.
//
//   ElasticWorker worker(options);
//   for (;;) {
//     ElasticWorker::Next next = worker.next();           // waits: an epoch | it is released | the job is over
//     ... of an epoch: finish or drop the step it was prepared for, as `recovery` says; worker.have_state(step)
//     ... connect to the roster (worker.sealed() ends that early); StateRecovery::heal: receive the state, worker.have_state(step)
//     ... worker.entered(step); then every step: compute and reduce the gradients
//         if (!worker.prepare()) stop;  vote over all ranks, with worker.change_requested();  if (!worker.decide()) stop;  update
//         all stop after a step whose vote requested a change
//     worker.left(error);                                 // however it ended: reports the progress of this worker
//   }
//
// A worker that is asked to leave while there is no coordinator leaves by itself: it requests a change in the vote, so that all that were
// asked stop after the same step, and rank 0 saves. One whose vote does not complete in time leaves without it.
// An evicted worker joins as new when its training thread calls next(), not before: that thread may hang.
//
// An urgent seal, an eviction and the end of the job call the function given to guard(), which aborts the epoch's communicator.
// One that has the state and finds no coordinator for `coordinator_timeout` leaves the same way, Released::why says so. So does one that is
// connected to a coordinator which is stopped, or whose host hangs, and has not answered for the time that it named itself (wait_limit).
// Time in which the worker's own process was suspended does not count.
// Owner: a worker's training thread. Threads: the training thread, and any for leave(). Failure: next() gives Over with Kind::peer_lost
// when a worker without the state finds no coordinator for `coordinator_timeout`, Kind::aborted from calls for an epoch that was sealed
// meanwhile.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "cohort/base/deadline.h"
#include "cohort/base/version.h"
#include "cohort/elastic/elastic_types.h"
#include "cohort/net/auth/control_connection.h"
#include "cohort/net/socket/listener.h"

namespace cohort::elastic {

struct ElasticWorkerOptions {
  std::string job;
  net::Address coordinator;
  net::Secret secret;
  std::string launch{};             // differs between two jobs of one name; empty: there is one of this name
  std::string host;                 // what the roster calls this host
  std::string listen{"127.0.0.1"};  // the address of this host at which peers reach us
  bool shards = false;              // each worker holds only a shard of the state
  Seconds heartbeat{2.0 / 3};       // as ElasticRules::heartbeat
  Seconds coordinator_timeout{30};  // without a coordinator, before the worker fails
  Seconds leave_timeout{2};         // likewise, before one that was asked to leave ends by itself
  Seconds silence_notice{10};       // connected, without an answer, before it says so
  int number = -1;                  // of this worker, in the order of their starts, as the launcher names it; -1: not known
  std::string version{cohort::version()};
};

class ElasticWorker {
 public:
  explicit ElasticWorker(ElasticWorkerOptions options);
  ~ElasticWorker();
  ElasticWorker(const ElasticWorker&) = delete;
  ElasticWorker& operator=(const ElasticWorker&) = delete;

  struct Begun {
    group::Roster roster;
    Rank rank;
    std::optional<std::int64_t> base;  // the step to continue from; none: from disk
    Rank heal_from;                    // the rank that sends it the state; kNoRank: it has it, or reads it from disk
    StateRecovery recovery = StateRecovery::stay;
  };
  struct Released {
    bool save = false;           // no other worker has the state: write a checkpoint first
    bool finish = false;         // .. after the step that it is prepared for, if it is; else without that step
    std::optional<Error> why{};  // it leaves by itself, since the coordinator is lost for good; none: it was asked to
  };
  struct Over {
    std::optional<Error> error;  // none: trained to the end
  };
  using Next = std::variant<Begun, Released, Over>;
  Next next();

  void guard(std::function<void(const Error&)> abort);  // empty: nothing to abort. It must not call this object
  net::Listener listener() const;                       // where the roster says that we listen; one more descriptor of it
  const std::atomic<bool>& sealed() const;              // the epoch under way is over
  void have_state(std::int64_t step);                   // the epoch's first state is here
  void entered(std::int64_t step);                      // and all ranks of the roster are connected
  bool prepare();
  bool decide();
  bool change_requested() const;  // the roster is to change after this step
  bool may_write(Epoch epoch) const;
  void left(const Error* why);  // none: after a requested change, or because it was sealed
  void ended(std::int64_t step);
  void leave(std::string why);
  bool leaving() const;
  // That rank has the state that this one holds, or it is on disk (kNoRank). Sharded state: before left(). Whole state: when it was saved
  // on leaving.
  void state_transferred(Rank to);
  void fail_job(const Error& why);  // no worker may continue: the coordinator ends the job with this error, within `leave_timeout`
  WorkerId id() const;              // of this id

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::elastic
