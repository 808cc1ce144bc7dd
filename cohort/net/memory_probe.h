// Which ranks can map each other's memory: tried, exchanged, and agreed on by all ranks. Ranks that map each other are one host. Ranks of
// different network namespaces never are, though they may have one kernel: to the network, a namespace is a host.
// Owner: connect_peers. Threads: one; a collective over the connections. Failure: Kind::usage, on every rank alike, when the requested
// transports contradict each other or shm was requested and some pair of ranks cannot have it.
#pragma once
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/fd.h"
#include "cohort/base/segment.h"
#include "cohort/net/auth/control_connection.h"

namespace cohort::net {

struct MemoryProbe {
  std::vector<int> hosts;      // by rank, the same on every rank: equal numbers share memory
  std::string why;             // not all share: the first reason
  Segment own;                 // our inbox ..
  std::vector<Segment> peers;  // .. and those of the ranks on our host, by rank
  Fd wake_pipe;                // ours ..
  std::vector<Fd> wake_pipes;  // .. and those of the ranks on our host, by rank
  bool all_share() const;
  bool none_share() const;
};
// wish: auto | shm | tcp. labels: a name for each rank's host, or empty; ranks with different names never share memory.
// connections: by rank, ours empty. given_up: as in ConnectPlan.
MemoryProbe probe_memory(Rank me, const std::string& wish, const std::vector<std::string>& labels,
                         std::vector<std::optional<ControlConnection>>& connections, Deadline deadline,
                         const std::atomic<bool>* given_up = nullptr);

// Numbers for the hosts, from 0 in rank order: a rank joins the first host all of whose ranks it maps and all of whose ranks map it.
std::vector<int> number_hosts(const std::vector<std::vector<bool>>& maps);

}  // namespace cohort::net
