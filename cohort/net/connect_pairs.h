// Every pair of ranks gets one authenticated connection: rank i connects to all j < i and accepts all j > i, all at once in one thread.
// Unauthenticated peers, wrong keys, stale epochs, wrong or duplicate ranks are refused without harm to the others.
// Owner: connect_peers. Threads: one. Failure: Kind::timeout names every missing rank and why; a refusal by a peer names both sides.
#pragma once
#include <optional>
#include <vector>

#include "cohort/net/auth/control_connection.h"
#include "cohort/net/connect.h"

namespace cohort::net {

// By rank, ours empty.
std::vector<std::optional<ControlConnection>> connect_all_pairs(const ConnectPlan& plan, const Listener& listener, Deadline deadline);

// The further sockets of links that have several: plan.streams - 1 more to every rank of `far`, by rank. Collective, after
// connect_all_pairs, once every rank knows that all others have finished that.
std::vector<std::vector<ControlConnection>> connect_extra_streams(const ConnectPlan& plan, const Listener& listener,
                                                                  const std::vector<bool>& far, Deadline deadline);

}  // namespace cohort::net
