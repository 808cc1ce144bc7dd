// From a list of addresses to a PeerLinks: every pair of ranks connects and authenticates, then memory is probed.
// shm when every rank can map every other's memory (tried, not guessed from host names), tcp when none can, else mixed: shared memory
// inside each host, tcp between hosts.
// Owner: the caller. Threads: one per rank; a collective of all ranks of the epoch. Failure: Kind::timeout names the missing ranks (a log
// line does after 5 s), Kind::peer_lost, Kind::corrupt (wrong key, version, job, epoch), Kind::usage (bad plan, transport not available).
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/net/auth/control_connection.h"
#include "cohort/net/socket/listener.h"
#include "cohort/net/transport/link.h"

namespace cohort::net {

struct ConnectPlan {
  std::string job;
  Epoch epoch;
  Rank me;
  Secret secret;
  std::vector<Address> addresses;   // one per rank; ours is where `listener` listens
  std::string transport = "auto";   // auto | shm | tcp; shm is refused with the reason when a peer cannot be mapped
  std::string congestion = "auto";  // sockets: per-socket congestion control; auto: cubic where the kernel has it, else the system's
  bool all_far = false;             // sockets: treat peers of this host as if they were remote, with checksums
  int streams = 0;                  // sockets of a tcp link, at most kMostStreams, alike on all ranks; 0: auto, see streams_for
  // A name for each rank's host; ranks with different names never share memory. Empty: ranks that can map each other share a host.
  std::vector<std::string> hosts;
  // Set by another thread: a rank that still waits for peers gives up with Kind::aborted. Borrowed until connect_peers returns; null:
  // never.
  const std::atomic<bool>* given_up = nullptr;
};

// What auto means: one socket, but four under a congestion control that paces (docs/bench.md).
int streams_for(std::string_view congestion);

// The listener is closed when all ranks are connected: later connections are refused.
std::unique_ptr<PeerLinks> connect_peers(ConnectPlan plan, Listener listener, Deadline deadline);

}  // namespace cohort::net
