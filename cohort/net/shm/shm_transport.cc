#include "cohort/net/shm/shm_transport.h"

namespace cohort::net {
namespace {

ShmPlan checked(ShmPlan plan) {
  const std::size_t n = plan.peers.size();
  if (plan.me.value < 0 || plan.me.value >= static_cast<int>(n) || !plan.own || (!plan.connections.empty() && plan.connections.size() != n))
    throw_failure(Kind::usage,
                  "shm: a plan for rank {} with {} inboxes and {} connections: they are indexed by rank, and ours must be there",
                  plan.me.value, n, plan.connections.size());
  for (std::size_t r = 0; r < n; ++r)
    if (static_cast<int>(r) != plan.me.value && !plan.peers[r])
      throw_failure(Kind::usage, "shm: an inbox is missing; every peer's must be opened before the links are made");
  return plan;
}

}  // namespace

ShmTransport::ShmTransport(ShmPlan plan)
    : TransportBase(plan.me, static_cast<int>(plan.peers.size()), plan.epoch, SpinPolicy::for_ranks(static_cast<int>(plan.peers.size()))),
      rings_(mailbox_, checked(std::move(plan)),
             {[this](Rank peer, const Error& error, bool polite) { lost(peer, error, polite); }, [this] { request_step(); }}) {}

}  // namespace cohort::net
