// The state that must survive a crash of an elastic job's coordinator: decisions as entries of a log, and the CoordinatorState that they
// fold into.
//
//   opened       a coordinator began to decide; its term is later than every one before
//   formed       an epoch: its members, and the step it continues from
//   gone         a member's process is known to have ended: it will never vote again
//   respawned    how many lost workers were replaced so far
//   left         how many left of their own will and were not made up for by others that joined: they are not replaced
//   transferred  the state that a member held, that rank of its epoch holds too, or it is on disk
//   finished     training is over; no epoch follows
//
// A CoordinatorState is changed by apply() alone, in the coordinator at work and in the one that replays the log, so the two cannot differ.
// The bytes of an entry: docs/reliability.md. Owner: values. Threads: any. Failure: Kind::corrupt for bytes that are no entry and for
// entries that cannot follow what came before.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/group/roster.h"

namespace cohort::elastic {

// A random number that a worker process draws when it starts, and again when it joins as new after it was evicted.
struct WorkerId {
  std::uint64_t value = 0;
  constexpr auto operator<=>(const WorkerId&) const = default;
};

struct Worker {
  WorkerId id;
  group::Member member;  // its rank is its position in the roster
  bool operator==(const Worker&) const = default;
};

struct Opened {
  std::uint64_t term = 0;
  bool operator==(const Opened&) const = default;
};
struct Formed {
  Epoch epoch;
  std::optional<std::int64_t> base;  // the last step that counts; none: what rank 0 finds on disk, or step 0
  std::vector<Worker> roster;        // by rank
  std::uint32_t holders = 0;         // the first so many ranks have the state after `base`, the others receive it from them
  bool operator==(const Formed&) const = default;
};
struct Gone {
  WorkerId worker;
  bool operator==(const Gone&) const = default;
};
struct Respawned {
  std::uint32_t so_far = 0;
  bool operator==(const Respawned&) const = default;
};
struct Left {
  std::uint32_t now = 0;
  bool operator==(const Left&) const = default;
};
struct Finished {
  std::int64_t step = 0;
  bool operator==(const Finished&) const = default;
};
struct ShardTransferred {
  WorkerId worker;
  Rank to;  // kNoRank: to the disk
  bool operator==(const ShardTransferred&) const = default;
};
using Entry = std::variant<Opened, Formed, Gone, Respawned, Finished, Left, ShardTransferred>;

struct CoordinatorState {
  std::uint64_t term = 0;
  Epoch epoch;  // 0: none was formed yet
  std::optional<std::int64_t> base;
  std::vector<Worker> roster;
  std::uint32_t holders = 0;
  std::set<WorkerId> gone;               // of the roster
  std::map<WorkerId, Rank> transferred;  // of the roster: the rank that holds its state too
  std::uint32_t respawned = 0, left = 0;
  std::optional<std::int64_t> finished;
  bool operator==(const CoordinatorState&) const = default;

  std::optional<Rank> rank_of(WorkerId worker) const;
  Rank heal_source(Rank rank) const;  // the rank that sends it the state; kNoRank: it has it, or reads it from disk
};

void apply(CoordinatorState& coordinator_state, const Entry& entry);
CoordinatorState replay(const std::vector<Entry>& entries);

inline constexpr std::size_t kMostEntryBytes = 4_MiB;  // 4096 members with the longest names fit
std::vector<std::byte> encode(const Entry& entry);
Entry decode_entry(ConstBytes bytes);

}  // namespace cohort::elastic
