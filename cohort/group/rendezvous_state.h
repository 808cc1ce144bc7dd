// RendezvousState decides who is in the next roster: a pure state machine, events in, actions out. No clock, no socket, no thread.
//
//   gathering --every rank joined--> complete: every rank gets the roster, the epoch is increased, gathering again (ranks may come back
//       |                            for another epoch after they left the last one)
//       |--a rank's process ended before it joined, or the deadline passed--> every rank that waits gets the reason, gathering again
//
// Time is a number of seconds of the caller's clock. A ConnectionId is the caller's number of one connection.
// Owner: the RendezvousServer. Threads: one at a time. Failure: none; what goes wrong is an action.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/group/roster.h"

namespace cohort::group {

using ConnectionId = int;

struct Welcome {  // the roster is complete: send it to all of them
  Roster roster;
  std::vector<ConnectionId> connection_ids;  // by rank
};
struct Refuse {  // this connection cannot take part; the others are not affected
  ConnectionId connection_id;
  Error error;
};
struct Warn {  // a line for the log, and for every rank that waits
  std::string text;
  std::vector<ConnectionId> connection_ids;
};
struct GiveUp {  // the job cannot start: send the error to every rank that waits
  Error error;
  std::vector<ConnectionId> connection_ids;
};
using Action = std::variant<Welcome, Refuse, Warn, GiveUp>;
using Actions = std::vector<Action>;

struct RendezvousRules {
  std::string job;
  int size = 1;
  double start_timeout = 30;  // from the first join of an epoch to the last
  double warn_after = 3;      // then the missing ranks are named, and again after every warn_every
  double warn_every = 10;
  std::string version{};  // of Cohort: what every rank must run
};

class RendezvousState {
 public:
  explicit RendezvousState(RendezvousRules rules);

  Actions join(ConnectionId connection_id, const Join& request, double now);
  Actions left(ConnectionId connection_id, double now);  // its connection ended before the roster was complete
  Actions ended(Rank rank, std::string how);             // its process has ended ("exit status 1"); remembered for later epochs
  Actions tick(double now);
  // When tick() is due next; none while no rank waits.
  std::optional<double> next_tick() const;

  std::vector<Rank> missing() const;
  bool gathering() const { return !waiting_.empty(); }
  Epoch epoch() const { return epoch_; }  // of the next roster

 private:
  struct Waiting {
    ConnectionId connection_id;
    Member member;
  };
  std::optional<Error> objection(const Join& request) const;
  Actions give_up(Kind kind, std::string text, Rank about);
  std::vector<ConnectionId> connection_ids() const;
  std::string state_of_missing() const;

  const RendezvousRules rules_;
  Epoch epoch_;
  std::map<Rank, Waiting> waiting_;
  std::map<Rank, std::string> ended_;         // how processes ended
  std::map<Rank, std::string> disconnected_;  // ranks that joined this epoch and disconnected, or were refused for their version
  double since_ = 0;                          // the first join of this epoch
  double warn_at_ = 0;
};

}  // namespace cohort::group
