// Links over tcp, between hosts (or processes and threads of one). One socket per peer: that of its ControlConnection. Or several, each
// with a ControlConnection of its own: whole messages of collectives travel in parallel, those of one tag always on the same socket
// (StreamId). Owner: the holder of the PeerLinks. Threads: any; a waiting thread makes progress for all peers (transport_base.h), and one
// monitor thread detects peers that die, leave or abort while nobody waits. Failure: see link.h. A stream that ends without a goodbye is a
// death; a host that vanished is detected within about 3 s. The bytes are described in docs/wire.md.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/net/auth/control_connection.h"
#include "cohort/net/transport/link.h"

namespace cohort::net {

struct TcpPlan {
  Rank me;
  Epoch epoch;
  std::vector<std::optional<ControlConnection>> connections;  // by rank, ours empty; no control frame is left unread
  std::string congestion = "auto";  // auto: cubic where the kernel has it, else the system's; or a name the kernel knows
  bool all_far = false;             // treat peers of this host as if they were remote: checksums, zero-copy sends
  bool partial = false;             // ranks without a connection are reached by other means: mixed.h
  std::vector<std::vector<ControlConnection>>
      more;  // by rank: further sockets, as many on both sides and in the same order; empty: none at all
};
std::unique_ptr<PeerLinks> tcp_peer_links(TcpPlan plan);

// Ranks as threads of this process, over real sockets of 127.0.0.1.
std::vector<std::unique_ptr<PeerLinks>> tcp_world(int ranks, Epoch epoch = {}, const std::string& congestion = "auto", bool all_far = false,
                                                  bool tls = false, int streams = 1);

bool paces(std::string_view congestion);  // spreads packets over time, not only by acknowledgements
// The congestion control that the socket has now. Kind::usage when the kernel does not offer `name`.
std::string set_congestion(int fd, const std::string& name);

}  // namespace cohort::net
