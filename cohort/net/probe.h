// Whose memory can be mapped by whom: tried, exchanged, and agreed on by all ranks.
// Owner: connect_mesh. Threads: one; a collective over the wires. Failure: Kind::usage, on every rank alike, when the wishes contradict
// each other or shm was demanded and some pair of ranks cannot have it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/segment.h"
#include "cohort/net/wire.h"

namespace cohort::net {

struct Probe {
  bool shared = false;         // every rank mapped every other's memory
  std::string why;             // not shared: the first reason
  Segment own;                 // shared: our inbox ..
  std::vector<Segment> peers;  // .. and theirs, by rank
};
// wish: auto | shm | tcp. Wires by rank, ours empty.
Probe probe_memory(Rank me, const std::string& wish, std::vector<std::optional<Wire>>& wires, Deadline deadline);

}  // namespace cohort::net
