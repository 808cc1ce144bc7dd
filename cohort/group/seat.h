// A worker's seat in an elastic job: the connection to the coordinator, the heart that beats on it, and the Ballot (ballot.h), behind one
// lock. A thread of its own listens, so that a seal is heard while the training thread computes.
//
//   Seat seat(options);
//   for (;;) {
//     Seat::Next next = seat.next();                     // waits: an epoch | it may go | the job is over
//     ... of an epoch: end or drop the step it was prepared for, as `settle` says; seat.have_state(step)
//     ... connect to the roster (seat.sealed() ends that early); who heals: receive the state, seat.have_state(step)
//     ... seat.entered(step); then every step: gradients agreed upon and held
//         if (!seat.prepare()) stop;  vote over all ranks, with seat.wish();  if (!seat.decide()) stop;  update
//         all stop after a step whose vote carried a wish
//     seat.left(error);                                  // however it ended: says where this worker stands
//   }
//
// A worker that is asked to leave while no coordinator can be found leaves by itself: it wishes for a change in the vote, so that all who
// were asked stop after the same step, and the one that was rank 0 saves. Who gets no vote through in time leaves without it.
// One that the job went on without joins as new when its training thread asks for an epoch, not before: it may be what hangs.
//
// An urgent seal, an eviction and the end of the job call what guard() was given, which aborts the epoch's communicator.
// Owner: a worker's training thread. Threads: the training thread, and any for leave(). Failure: next() throws Kind::peer_lost when the
// coordinator is not found again within `patience`, Kind::aborted from calls for an epoch that was sealed meanwhile.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "cohort/base/deadline.h"
#include "cohort/group/elastic_types.h"
#include "cohort/net/wire.h"

namespace cohort::group {

struct SeatOptions {
  std::string job;
  net::Address coordinator;
  net::Secret secret;
  std::string host;                 // what the roster calls this host
  std::string listen{"127.0.0.1"};  // the address of this host at which peers reach us
  bool shards = false;              // the coordinator knows that each worker has a part of the state only
  Seconds heartbeat{2.0 / 3};       // as ElasticRules::heartbeat
  Seconds patience{30};             // without a coordinator, before the worker gives up
  Seconds farewell{2};              // the same for one that was asked to leave: nobody is there to let it go
};

class Seat {
 public:
  explicit Seat(SeatOptions options);
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  struct Begun {
    Roster roster;
    Rank rank;
    std::optional<std::int64_t> base;  // the step it goes on from; none: from disk
    Rank heal_from;                    // kNoRank: it has the state, or reads it
    Settle settle = Settle::stay;
  };
  struct Released {
    bool save = false;    // nobody else has the state: to disk with it, first
    bool finish = false;  // .. after the step that it is prepared for, if it is; else without that step
  };
  struct Over {
    std::optional<Error> error;  // none: trained to the end
  };
  using Next = std::variant<Begun, Released, Over>;
  Next next();

  void guard(std::function<void(const Error&)> abort);  // empty: nothing to abort. It must not call the seat
  net::Listener listener() const;                       // where the roster says that we listen; one more descriptor of it
  const std::atomic<bool>& sealed() const;              // the epoch under way is over
  void have_state(std::int64_t step);                   // the epoch's first state is here
  void entered(std::int64_t step);                      // and all of the roster are connected
  bool prepare();
  bool decide();
  bool wish() const;  // somebody wants the roster to change after this step
  bool may_write(Epoch epoch) const;
  void left(const Error* why);  // none: after a wish, or because it was sealed
  void ended(std::int64_t step);
  void leave(std::string why);
  bool leaving() const;
  // That rank has what this one had, or the disk (kNoRank). Sharded state: before left(). A whole one: when it was saved on leaving.
  void entrusted(Rank to);
  void condemn(const Error& why);  // nobody shall go on with this job: the coordinator ends it with these words, within `farewell`
  WorkerId id() const;             // of this life

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::group
