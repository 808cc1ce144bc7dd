// The PeerLinks behind mixed.h: the tcp transport, with the rings of the shm transport for the ranks of this host. Only mixed.cc includes
// this.
#pragma once
#include "cohort/net/mixed.h"
#include "cohort/net/shm/rings.h"
#include "cohort/net/tcp/tcp_transport.h"

namespace cohort::net {

class MixedTransport final : public TcpTransport {
 public:
  explicit MixedTransport(MixedPlan plan);
  ~MixedTransport() override { stop_monitor(); }  // then ~ShmRings sends a goodbye to this host's ranks
  std::string_view transport() const override { return "mixed"; }
  int host(Rank peer) const override { return hosts_[static_cast<std::size_t>(peer.value)]; }

 protected:
  Pending launch(Rank to, ConstBytes bytes, Tag tag) override;
  bool step() override;
  void sleep(Deadline deadline) override;
  void send_abort(const Error& error) noexcept override;
  void on_failed(Rank peer) noexcept override;
  void on_room(Rank peer) override;

 private:
  bool is_near(Rank peer) const { return peer != rank() && host(peer) == host(rank()); }
  const std::vector<int> hosts_;
  const Fd wake_pipe_;  // before rings_: a peer that sees us may write to it at once
  ShmRings rings_;
};

}  // namespace cohort::net
