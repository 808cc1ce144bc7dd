// What happens to an elastic job (events), what the coordinator does about it (actions), and the rules in between: the types of
// membership.h. A ConnectionId is the caller's number of one connection, never used again for another. Owner: values. Threads: any.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/elastic/coordinator_state.h"
#include "cohort/elastic/step_commit.h"
#include "cohort/group/rendezvous_state.h"

namespace cohort::elastic {

enum class Quorum { minimum, majority };  // who may continue after a loss: `min_workers` | and more than half of the last roster
enum class HeldState {
  whole,
  shard,
  shard_and_buddy
};  // what a worker holds: all of the state | its rank's shard | and a copy of the one before

struct ElasticRules {
  std::string job;
  int min_workers = 1, max_workers = 1;  // --min-n, --max-n
  int target_workers = 1;                // how many the job starts with, and lost ones are replaced up to
  int respawns = 0;                      // how many lost workers are replaced in all
  Quorum quorum = Quorum::minimum;
  HeldState held_state = HeldState::whole;
  double heartbeat = 2.0 / 3;  // seconds, as all below; a worker that misses three of them counts as lost
  double start_grace = 30;     // for `target_workers` to join; then `min_workers` are enough
  double wait_limit = 600;     // below `min_workers`, before the job gives up; and for workers without an answer of the coordinator
  double warn_every = 10;      // while it waits: the reason is logged
  double report_limit = 10;    // from an urgent seal to a member's report
  double settle_limit = 120;   // from the start of an epoch until all members have its first state
  double rejoin_limit = 5;     // for members to reconnect to a coordinator that was restarted
  double state_timeout = 30;   // for an unreachable holder of the state to return, before the newest checkpoint is read
  double cool_down = 5;        // before newcomers are admitted after an epoch that could not connect; doubles
  double lost_after() const { return 3 * heartbeat; }
};

// --- events; each from a connection unless stated otherwise
struct Arrive {  // the first message on a connection: a new worker, or a member that reconnects
  group::ConnectionId connection_id = 0;
  Worker worker;
  Epoch epoch;                                    // the last one that it entered; 0: none
  bool sealed = false;                            // it votes no more in that epoch
  bool settled = false;                           // it has that epoch's first state
  std::optional<WorkerProgress> worker_progress;  // none: no state
  std::string version{};                          // of its Cohort; empty: it does not say
};
struct Heartbeat {
  group::ConnectionId connection_id = 0;
};
struct Reported {  // it is sealed, on request or by itself, and this is its progress
  group::ConnectionId connection_id = 0;
  Epoch epoch;
  std::optional<WorkerProgress> worker_progress;
};
struct Settled {  // the epoch's first state is there; again, with a later step, when the first step is committed
  group::ConnectionId connection_id = 0;
  Epoch epoch;
  std::int64_t step = 0;
};
struct PeerUnreachable {  // its connection to that rank failed
  group::ConnectionId connection_id = 0;
  Epoch epoch;
  Rank about;
};
struct Leaving {  // notice of preemption, or a request of its owner
  group::ConnectionId connection_id = 0;
  std::string why;
};
struct Ended {  // training is over, everywhere: the last barrier was passed
  group::ConnectionId connection_id = 0;
  std::int64_t step = 0;
};
struct StateTransferred {  // that rank of its epoch now holds its part of the state too. kNoRank: it is on disk
  group::ConnectionId connection_id = 0;
  Epoch epoch;
  Rank to;
};
struct JobFailed {  // the results of the job are wrong, whichever workers continue: it must end
  group::ConnectionId connection_id = 0;
  Error error;
};
struct LinkEnded {
  group::ConnectionId connection_id = 0;
};
struct ProcessEnded {  // from the launcher, which saw its exit
  WorkerId worker;
  std::string how;
};
struct SpawnFailed {  // from the launcher: a replacement could not be started
  std::string why;
};
struct Adopted {  // from the launcher, to a restarted coordinator: workers that run and are in no roster
  int count = 0;
  int pending = 0;  // those that an earlier coordinator requested and that are still to be started
};
struct Tick {};
using ElasticEvent = std::variant<Arrive, Heartbeat, Reported, Settled, PeerUnreachable, Leaving, Ended, StateTransferred, JobFailed,
                                  LinkEnded, ProcessEnded, SpawnFailed, Adopted, Tick>;

// --- actions
struct SealEpoch {  // vote no more in this epoch, then report. Not urgent: after the step under way
  std::vector<group::ConnectionId> connection_ids;
  std::uint64_t term = 0;
  Epoch epoch;
  bool urgent = false;
};
struct BeginEpoch {  // tells a member its epoch, roster and rank
  group::ConnectionId connection_id = 0;
  std::uint64_t term = 0;
  group::Roster roster;
  Rank rank;
  std::optional<std::int64_t> base;  // the step to continue from. None: rank 0 reads the disk, the others receive the state from it
  Rank heal_from = kNoRank;          // the rank that sends it the state. None: it has the state, or reads it
};
struct Release {  // it asked to leave and may
  group::ConnectionId connection_id = 0;
  bool save = false;    // no other worker has the state: it writes a checkpoint first
  bool finish = false;  // .. after the step it is prepared for: no member can return that would take another step in its place
};
struct Evict {  // the job continued without it: it drops all state and may join as a new worker
  group::ConnectionId connection_id = 0;
  Error error;
};
struct Respawn {
  int count = 0;
};
struct Say {  // a line for the log, and for workers that wait
  std::string text;
  std::vector<group::ConnectionId> connection_ids;
};
struct Alive {  // the answer to each heartbeat: the coordinator is neither stopped nor hangs
  group::ConnectionId connection_id = 0;
  std::int64_t pid = 0;            // of its process
  std::int64_t silence_limit = 0;  // milliseconds: a worker without an answer for so long gives it up
  std::string host{};
};
struct Stop {  // the job is over; no error: trained to its end
  std::vector<group::ConnectionId> connection_ids;
  std::optional<Error> error;
};
using ElasticAction = std::variant<SealEpoch, BeginEpoch, Release, Evict, group::Refuse, Respawn, Say, Alive, Stop>;

// Entries must be on disk before the first action is carried out.
struct Decided {
  std::vector<Entry> entries;
  std::vector<ElasticAction> actions;
};

}  // namespace cohort::elastic
