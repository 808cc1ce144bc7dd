// The PeerLinks of the shm transport (see shm.h): all peers share memory, and a thread that waits sleeps on a futex.
// Only shm.cc includes this.
#pragma once
#include "cohort/net/shm/rings.h"

namespace cohort::net {

class ShmTransport final : public TransportBase {
 public:
  explicit ShmTransport(ShmPlan plan);
  std::string_view transport() const override { return "shm"; }
  bool shares_memory() const override { return true; }

 protected:
  Pending launch(Rank to, ConstBytes bytes, Tag tag) override {
    auto sending = rings_.launch(to, bytes, tag);
    return sending ? pending(std::move(sending)) : Pending{};
  }
  bool step() override { return rings_.step(); }
  void sleep(Deadline deadline) override { rings_.sleep(deadline); }
  void wake() noexcept override { rings_.wake(); }
  void send_abort(const Error& error) noexcept override { rings_.abort(error); }
  void on_failed(Rank peer) noexcept override { rings_.failed(peer); }
  void on_room(Rank peer) override {
    rings_.may_resume(peer);
    wake();
  }

 private:
  ShmRings rings_;
};

}  // namespace cohort::net
