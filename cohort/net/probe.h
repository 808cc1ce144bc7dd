// Whose memory can be mapped by whom: tried, exchanged, and agreed on by all ranks. Ranks that map each other are one host. Ranks of
// different network namespaces never are, though they may have one kernel: a namespace is what a host looks like to the network.
// Owner: connect_mesh. Threads: one; a collective over the wires. Failure: Kind::usage, on every rank alike, when the wishes contradict
// each other or shm was demanded and some pair of ranks cannot have it.
#pragma once
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/fd.h"
#include "cohort/base/segment.h"
#include "cohort/net/wire.h"

namespace cohort::net {

struct Probe {
  std::vector<int> hosts;      // by rank, the same on every rank: equal numbers share memory
  std::string why;             // not all share: the first reason
  Segment own;                 // our inbox ..
  std::vector<Segment> peers;  // .. and those of the ranks on our host, by rank
  Fd bell;                     // the same of pipes to wake each other with
  std::vector<Fd> bells;
  bool all_share() const;
  bool none_share() const;
};
// wish: auto | shm | tcp. labels: a word for each rank's host, or empty; ranks with different words never share memory.
// Wires by rank, ours empty. given_up: as in MeshPlan.
Probe probe_memory(Rank me, const std::string& wish, const std::vector<std::string>& labels, std::vector<std::optional<Wire>>& wires,
                   Deadline deadline, const std::atomic<bool>* given_up = nullptr);

// Numbers for the hosts, from 0 in rank order: a rank joins the first host whose ranks it maps all, and which all map it.
std::vector<int> number_hosts(const std::vector<std::vector<bool>>& maps);

}  // namespace cohort::net
