// The Mesh behind mixed.h: the tcp mesh, with the rings of the shm transport for the ranks of this host. Only mixed.cc includes this.
#pragma once
#include "cohort/net/mixed.h"
#include "cohort/net/shm_rings.h"
#include "cohort/net/tcp_mesh.h"

namespace cohort::net {

class MixedMesh final : public TcpMesh {
 public:
  explicit MixedMesh(MixedPlan plan);
  ~MixedMesh() override { stop_monitor(); }  // then the rings go, which say goodbye to this host's ranks
  std::string_view transport() const override { return "mixed"; }
  int host(Rank peer) const override { return hosts_[static_cast<std::size_t>(peer.value)]; }

 protected:
  Pending launch(Rank to, ConstBytes bytes, Tag tag) override;
  bool step() override;
  void sleep(Deadline deadline) override;
  void tell_abort(const Error& error) noexcept override;
  void on_failed(Rank peer) noexcept override;
  void on_room(Rank peer) override;

 private:
  bool is_near(Rank peer) const { return peer != rank() && host(peer) == host(rank()); }
  const std::vector<int> hosts_;
  const Fd bell_pipe_;  // before the rings: a peer that hears of us may ring at once
  ShmRings rings_;
};

}  // namespace cohort::net
