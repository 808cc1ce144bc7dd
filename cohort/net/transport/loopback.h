// Ranks as threads of one process: what unit tests, laws and the simulator run on.
#pragma once
#include <memory>
#include <vector>

#include "cohort/net/transport/link.h"

namespace cohort::net {

// One PeerLinks per rank, all connected to each other. shares_memory() is true: segments of one process can be opened by its threads.
std::vector<std::unique_ptr<PeerLinks>> loopback_world(int ranks, Epoch epoch = {});

}  // namespace cohort::net
