// From a list of addresses to a Mesh: every pair of ranks connects and proves itself, then memory is probed.
// shm when every rank can map every other's memory (proved, not guessed from host names), tcp when none can, else a mixed mesh: memory
// inside each host, tcp between hosts.
// Owner: the caller. Threads: one per rank; a collective of all ranks of the epoch. Failure: Kind::timeout names the missing ranks (a log
// line does after 5 s), Kind::peer_lost, Kind::corrupt (wrong key, version, job, epoch), Kind::usage (bad plan, transport not to be had).
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/net/link.h"
#include "cohort/net/wire.h"

namespace cohort::net {

struct MeshPlan {
  std::string job;
  Epoch epoch;
  Rank me;
  Secret secret;
  std::vector<Address> addresses;   // one per rank; ours is where `listener` listens
  std::string transport = "auto";   // auto | shm | tcp; shm is refused with the reason when a peer cannot be mapped
  std::string congestion = "auto";  // sockets: per-socket congestion control; auto: cubic where the kernel has it, else the system's
  bool all_far = false;             // sockets: treat peers of this host as if they were remote, checksums and all
  int streams = 0;                  // sockets of a tcp link, at most kMostStreams, alike on all ranks; 0: auto, see streams_for
  // A word for each rank's host; ranks with different words never share memory. Empty: whoever can map each other shares a host.
  std::vector<std::string> hosts;
  // Set by another thread: whoever still waits for peers gives up with Kind::aborted. Borrowed while ranks meet; none: nobody does.
  const std::atomic<bool>* given_up = nullptr;
};

// What auto means: one socket, but four under a congestion control that paces (docs/bench.md).
int streams_for(std::string_view congestion);

// The listener is closed when all ranks have met: a mesh takes no late comers.
std::unique_ptr<Mesh> connect_mesh(MeshPlan plan, Listener listener, Deadline deadline);

}  // namespace cohort::net
