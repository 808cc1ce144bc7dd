// Links of two kinds: through shared memory to the ranks of this host, over tcp to those of other hosts.
// One mailbox, one wait: a thread that waits makes progress for every peer, and sleeps in poll(2) on the sockets and on a pipe that the
// ranks of this host write to (wake_pipe.h). Owner: the holder of the PeerLinks. Threads: any; two monitors, one for the sockets and one
// for the ranks of this host. Failure: see link.h; a peer that dies, leaves or aborts is detected by the transport that reaches it.
#pragma once
#include "cohort/net/shm/shm.h"
#include "cohort/net/tcp/tcp.h"

namespace cohort::net {

struct MixedPlan {
  std::vector<int> hosts;  // by rank: ranks with the same number share memory
  ShmPlan inside;          // inboxes, connections and wake pipes of this host's ranks only
  TcpPlan between;         // connections to the others only
  Fd wake_pipe;            // ours
};
std::unique_ptr<PeerLinks> mixed_peer_links(MixedPlan plan);

// Ranks as threads of this process, over real rings and real sockets of 127.0.0.1; hosts is one number per rank.
std::vector<std::unique_ptr<PeerLinks>> mixed_world(const std::vector<int>& hosts, Epoch epoch = {},
                                                    const std::string& congestion = "auto");

}  // namespace cohort::net
