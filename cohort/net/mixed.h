// Links of two kinds in one mesh: through shared memory to the ranks of this host, over tcp to those of other hosts.
// One mailbox, one wait: a thread that waits moves bytes for every peer, and sleeps in poll(2) on the sockets and on a pipe that the ranks
// of this host write to (bell_pipe.h). Owner: whoever holds the Mesh. Threads: any; two monitors, one for the sockets and one for the ends
// of this host's ranks. Failure: see link.h; a peer that dies, leaves or aborts is noticed as by the transport that reaches it.
#pragma once
#include "cohort/net/shm.h"
#include "cohort/net/tcp.h"

namespace cohort::net {

struct MixedPlan {
  std::vector<int> hosts;  // by rank: ranks with the same number share memory
  ShmPlan inside;          // peers, wires and bells of this host's ranks only
  TcpPlan between;         // wires of the others only
  Fd bell;                 // ours
};
std::unique_ptr<Mesh> mixed_mesh(MixedPlan plan);

// Ranks as threads of this process, over real rings and real sockets of 127.0.0.1; hosts is one number per rank.
std::vector<std::unique_ptr<Mesh>> mixed_meshes(const std::vector<int>& hosts, Epoch epoch = {}, const std::string& congestion = "auto");

}  // namespace cohort::net
