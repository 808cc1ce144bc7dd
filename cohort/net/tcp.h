// Links over tcp, between hosts (or processes and threads of one). One socket per peer: the one its Wire proved itself on. Or several,
// each with a Wire of its own: whole messages of collectives go side by side, those of one tag always on the same socket (Strand).
// Owner: whoever holds the Mesh. Threads: any; a waiting thread moves the bytes of all peers (hub.h), and one monitor thread notices peers
// that die, leave or abort while nobody waits. Failure: see link.h. A stream that ends without a goodbye is a death; a host that
// vanished is noticed within about 3 s. The bytes are described in docs/wire.md.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/net/link.h"
#include "cohort/net/wire.h"

namespace cohort::net {

struct TcpPlan {
  Rank me;
  Epoch epoch;
  std::vector<std::optional<Wire>> wires;  // by rank, ours empty; all peers' frames have been read
  std::string congestion = "auto";         // auto: cubic where the kernel has it, else the system's; or a name the kernel knows
  bool all_far = false;                    // treat peers of this host as if they were remote: checksums, zero-copy sends
  bool partial = false;                    // ranks without a wire are reached by other means: mixed_mesh.h
  std::vector<std::vector<Wire>> more;     // by rank: further sockets, as many on both sides and in the same order; empty: none at all
};
std::unique_ptr<Mesh> tcp_mesh(TcpPlan plan);

// Ranks as threads of this process, over real sockets of 127.0.0.1.
std::vector<std::unique_ptr<Mesh>> tcp_meshes(int ranks, Epoch epoch = {}, const std::string& congestion = "auto", bool all_far = false,
                                              bool tls = false, int streams = 1);

bool paces(std::string_view congestion);  // sends by the clock, not only by what was acknowledged
// The control algorithm the socket ended up with. Kind::usage when `name` is none the kernel offers.
std::string set_congestion(int fd, const std::string& name);

}  // namespace cohort::net
