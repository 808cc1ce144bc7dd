// What happens to an elastic job (events), what is to be done about it (actions), and the rules in between: the vocabulary of elastic.h.
// A Guest is the caller's name for one connection (membership.h), never used again for another. Owner: values. Threads: any.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/group/ballot.h"
#include "cohort/group/charter.h"
#include "cohort/group/membership.h"

namespace cohort::group {

enum class Quorum { minimum, majority };  // who may go on after a loss: `least` workers | and more than half of the last roster
enum class Holding { whole, shard, shard_and_buddy };  // a worker's state: all of it | its rank's part | and that of the rank before

struct ElasticRules {
  std::string job;
  int least = 1, most = 1;  // --min-n, --max-n
  int wanted = 1;           // how many the job starts with, and lost ones are replaced up to
  int respawns = 0;         // how many lost workers are replaced in all
  Quorum quorum = Quorum::minimum;
  Holding holding = Holding::whole;
  double heartbeat = 2.0 / 3;  // a worker that is silent for three of them is taken for lost
  double start_grace = 30;     // for `wanted` workers to come; then `least` are enough
  double wait_limit = 600;     // below `least`, before the job gives up
  double warn_every = 10;      // while it waits, why
  double report_limit = 10;    // from an urgent seal to a member's report
  double settle_limit = 120;   // from an epoch's beginning until all have its first state
  double return_limit = 5;     // for members to find a coordinator that was restarted
  double state_patience = 30;  // for somebody who holds the state to be heard again, before the disk is asked
  double cool_down = 5;        // before newcomers are let in after an epoch that could not connect; doubles
  double lost_after() const { return 3 * heartbeat; }
};

// --- events; each from a connection unless said
struct Arrive {  // the first word on a connection: a new worker, or a member that comes back
  Guest guest = 0;
  Worker worker;
  Epoch epoch;                       // the last one it was welcomed to; 0: none
  bool sealed = false;               // it votes no more in that epoch
  bool settled = false;              // it has that epoch's first state
  std::optional<Standing> standing;  // none: no state
};
struct Heard {  // a heartbeat
  Guest guest = 0;
};
struct Reported {  // sealed, asked or not
  Guest guest = 0;
  Epoch epoch;
  std::optional<Standing> standing;
};
struct Settled {  // the epoch's first state is there
  Guest guest = 0;
  Epoch epoch;
  std::int64_t step = 0;
};
struct Complained {  // it cannot reach that rank
  Guest guest = 0;
  Epoch epoch;
  Rank about;
};
struct Leaving {  // notice of preemption, or its owner's wish
  Guest guest = 0;
  std::string why;
};
struct Ended {  // training is over, everywhere: the last barrier was passed
  Guest guest = 0;
  std::int64_t step = 0;
};
struct Entrusted {  // what it held of its epoch's state, that rank of its epoch holds too. kNoRank: it lies on disk
  Guest guest = 0;
  Epoch epoch;
  Rank to;
};
struct Condemned {  // the job cannot be right any more, whoever goes on: it is over
  Guest guest = 0;
  Error error;
};
struct LinkEnded {
  Guest guest = 0;
};
struct ProcessEnded {  // from the launcher, who knows
  WorkerId worker;
  std::string how;
};
struct SpawnFailed {  // from the launcher: a replacement that was asked for will not come
  std::string why;
};
struct Adopted {  // from the launcher, to a coordinator that was started again: workers that run and are in no roster
  int count = 0;
  int owed = 0;  // those that an earlier one asked for and that are still to be started
};
struct Tick {};
using ElasticEvent = std::variant<Arrive, Heard, Reported, Settled, Complained, Leaving, Ended, Entrusted, Condemned, LinkEnded,
                                  ProcessEnded, SpawnFailed, Adopted, Tick>;

// --- actions
struct Seal {  // vote no more in this epoch, then report. Not urgent: after the step under way
  std::vector<Guest> guests;
  std::uint64_t term = 0;
  Epoch epoch;
  bool urgent = false;
};
struct Begin {  // a member's welcome to an epoch
  Guest guest = 0;
  std::uint64_t term = 0;
  Roster roster;
  Rank rank;
  std::optional<std::int64_t> base;  // none: rank 0 begins from disk, the others heal from it
  Rank heal_from = kNoRank;          // none: it has the state, or reads it
};
struct Release {  // it wanted to leave and may
  Guest guest = 0;
  bool save = false;    // nobody else has the state: to disk with it, first
  bool finish = false;  // .. after the step it is prepared for: nobody will come back who could take another one
};
struct Evict {  // the job went on without it: drop all state, join as new
  Guest guest = 0;
  Error error;
};
struct Respawn {
  int count = 0;
};
struct Say {  // to people, and to those who wait
  std::string text;
  std::vector<Guest> guests;
};
struct Stop {  // the job is over; no error: trained to its end
  std::vector<Guest> guests;
  std::optional<Error> error;
};
using ElasticAction = std::variant<Seal, Begin, Release, Evict, Refuse, Respawn, Say, Stop>;

// Entries must be on disk before the first action is carried out.
struct Decided {
  std::vector<Entry> entries;
  std::vector<ElasticAction> actions;
};

}  // namespace cohort::group
