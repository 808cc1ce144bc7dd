// Membership decides who is in the next roster: a pure state machine, events in, actions out. No clock, no socket, no thread.
//
//   gathering --every rank joined--> complete: everybody gets the roster, the epoch goes up, gathering again (ranks may come back
//       |                            for another epoch after they left the last one)
//       |--a rank's process ended before it joined, or the deadline passed--> everybody who waits gets the reason, gathering again
//
// Time is a number of seconds that only the caller's clock gives meaning to. A Guest is the caller's name for one connection.
// Owner: the coordinator. Threads: one at a time. Failure: none; what goes wrong is an action.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/group/roster.h"

namespace cohort::group {

using Guest = int;

struct Welcome {  // the roster is complete: send it to all of them
  Roster roster;
  std::vector<Guest> guests;  // by rank
};
struct Refuse {  // this one cannot take part; the others are not harmed
  Guest guest;
  Error error;
};
struct Warn {  // say it here and to everyone who waits
  std::string text;
  std::vector<Guest> guests;
};
struct GiveUp {  // nobody can start: tell everyone who waits, and forget them
  Error error;
  std::vector<Guest> guests;
};
using Action = std::variant<Welcome, Refuse, Warn, GiveUp>;
using Actions = std::vector<Action>;

struct MembershipRules {
  std::string job;
  int size = 1;
  double start_timeout = 30;  // from the first join of an epoch to the last
  double warn_after = 3;      // then the missing are named, and again after every warn_every
  double warn_every = 10;
};

class Membership {
 public:
  explicit Membership(MembershipRules rules);

  Actions join(Guest guest, const Join& wish, double now);
  Actions left(Guest guest, double now);      // its connection ended before the roster was complete
  Actions ended(Rank rank, std::string how);  // its process is gone ("exit status 1"); kept for later epochs, too
  Actions tick(double now);
  // When tick() next has something to say; none while nobody waits.
  std::optional<double> next_tick() const;

  std::vector<Rank> missing() const;
  bool gathering() const { return !waiting_.empty(); }
  Epoch epoch() const { return epoch_; }  // of the next roster

 private:
  struct Waiting {
    Guest guest;
    Member member;
  };
  std::optional<Error> objection(const Join& wish) const;
  Actions give_up(Kind kind, std::string text, Rank about);
  std::vector<Guest> guests() const;
  std::string state_of_missing() const;

  const MembershipRules rules_;
  Epoch epoch_;
  std::map<Rank, Waiting> waiting_;
  std::map<Rank, std::string> ended_;    // how processes ended, as the launcher said
  std::map<Rank, std::string> strayed_;  // who had joined this epoch and went away again
  double since_ = 0;                     // the first join of this epoch
  double warn_at_ = 0;
};

}  // namespace cohort::group
