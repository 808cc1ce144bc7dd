// Links over tcp, between hosts (or processes and threads of one). One socket per peer: the one its Wire proved itself on.
// Owner: whoever holds the Mesh. Threads: any; a waiting thread moves the bytes of all peers (hub.h), and one monitor thread notices peers
// that die, leave or abort while nobody waits. Failure: see link.h. A stream that ends without a goodbye is a death; a host that
// vanished is noticed within about 3 s. The bytes are described in docs/wire.md.
#pragma once
#include <memory>
#include <optional>
#include <string>
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
};
std::unique_ptr<Mesh> tcp_mesh(TcpPlan plan);

// Ranks as threads of this process, over real sockets of 127.0.0.1.
std::vector<std::unique_ptr<Mesh>> tcp_meshes(int ranks, Epoch epoch = {}, const std::string& congestion = "auto", bool all_far = false,
                                              bool tls = false);

// The control algorithm the socket ended up with. Kind::usage when `name` is none the kernel offers.
std::string set_congestion(int fd, const std::string& name);

}  // namespace cohort::net
