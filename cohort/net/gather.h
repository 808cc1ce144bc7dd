// Every pair of ranks gets one authenticated connection: rank i calls all j < i and is called by all j > i, all at once in one thread.
// Strangers, wrong keys, stale epochs, wrong or duplicate ranks are refused at the door without harming the others.
// Owner: connect_mesh. Threads: one. Failure: Kind::timeout names every missing rank and why; a refusal by a peer names both sides.
#pragma once
#include <optional>
#include <vector>

#include "cohort/net/connect.h"
#include "cohort/net/wire.h"

namespace cohort::net {

// By rank, ours empty.
std::vector<std::optional<Wire>> gather_wires(const MeshPlan& plan, const Listener& listener, Deadline deadline);

// The further sockets of links that have several: plan.streams - 1 more to every rank of `far`, by rank. After gather_wires, by all ranks,
// and when all know that everybody has ended that.
std::vector<std::vector<Wire>> gather_streams(const MeshPlan& plan, const Listener& listener, const std::vector<bool>& far,
                                              Deadline deadline);

}  // namespace cohort::net
