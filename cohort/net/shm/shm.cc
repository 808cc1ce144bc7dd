#include "cohort/net/shm/shm.h"

#include "cohort/net/shm/shm_transport.h"

namespace cohort::net {

Segment make_shm_inbox(int ranks, std::size_t ring_bytes) {
  const auto n = static_cast<std::size_t>(ranks);
  Segment segment = Segment::create(Inbox::bytes_for(n, ring_bytes), "cohort-inbox", false);
  Inbox(segment).format(n, ring_bytes);
  return segment;
}

std::unique_ptr<PeerLinks> shm_peer_links(ShmPlan plan) { return std::make_unique<ShmTransport>(std::move(plan)); }

std::vector<std::unique_ptr<PeerLinks>> shm_world(int ranks, Epoch epoch, std::size_t ring_bytes) {
  std::vector<ShmPlan> plans(static_cast<std::size_t>(ranks));
  for (auto& plan : plans) plan.own = make_shm_inbox(ranks, ring_bytes);
  for (std::size_t me = 0; me < plans.size(); ++me) {
    plans[me].me = Rank{static_cast<int>(me)};
    plans[me].epoch = epoch;
    for (std::size_t peer = 0; peer < plans.size(); ++peer) {
      std::string why;
      auto opened = peer == me ? std::optional(Segment{}) : Segment::open(plans[peer].own.name(), false, &why);
      if (!opened) throw_failure(Kind::system, "shm: rank {} cannot open the inbox of rank {}: {}", me, peer, why);
      plans[me].peers.push_back(std::move(*opened));
    }
  }
  std::vector<std::unique_ptr<PeerLinks>> world;
  for (auto& plan : plans) world.push_back(shm_peer_links(std::move(plan)));
  return world;
}

}  // namespace cohort::net
