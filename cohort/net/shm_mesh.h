// The Mesh of the shm transport (shm.h tells what it is): this rank's ends of all rings, moved by whoever waits.
// shm_send.cc fills the peers' inboxes, shm_receive.cc empties ours, shm_mesh.cc waits. Only these files include this.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cohort/net/control.h"
#include "cohort/net/hub.h"
#include "cohort/net/shm.h"
#include "cohort/net/shm_ring.h"

namespace cohort::net {

inline constexpr std::size_t kPieceBytes = 32_KiB;  // published at a time, so that both sides copy at once
inline constexpr std::size_t kWholeBytes = 4_KiB;   // messages up to here are handed over in one go

class ShmMesh final : public Hub {
 public:
  explicit ShmMesh(ShmPlan plan);
  ~ShmMesh() override;
  std::string_view transport() const override { return "shm"; }
  bool shares_memory() const override { return true; }

 protected:
  Pending launch(Rank to, ConstBytes bytes, Tag tag) override;
  bool step() override;
  void sleep(Deadline deadline) override;
  void wake() noexcept override;
  void tell_abort(const Error& error) noexcept override {
    if (control_) control_->abort(error);
  }
  void on_failed(Rank peer) noexcept override;
  void on_room(Rank peer) override {
    in(peer).paused = false;
    wake();
  }

 private:
  struct Out {  // to one peer
    std::mutex mutex;
    RingWriter ring;                             // guarded by mutex
    std::deque<std::shared_ptr<Sending>> queue;  // guarded by mutex: not all in the ring yet
    std::size_t sent = 0;                        // guarded by mutex: bytes of the first in the queue that are
    bool begun = false;                          // guarded by mutex: its header is
    std::atomic<bool> busy{false};               // the queue is not empty
    bool put(Tag tag, ConstBytes bytes, const Inbox& reader);
  };
  struct In {  // from one peer; the driver's, but for the flags
    RingReader ring;
    std::optional<Landing> landing;
    std::atomic<bool> paused{false};   // the mailbox is full of this peer's messages
    std::atomic<bool> leaving{false};  // it said goodbye: lost once its ring is empty
  };
  Out& out(Rank peer) { return outs_[static_cast<std::size_t>(peer.value)]; }
  In& in(Rank peer) { return ins_[static_cast<std::size_t>(peer.value)]; }
  const Inbox& inbox(Rank peer) const { return inboxes_[static_cast<std::size_t>(peer.value)]; }

  bool push(Rank to);
  bool pull(Rank from);
  bool read_some(Rank from, In& i);
  std::size_t read_message(Rank from, In& i, std::size_t held);
  bool work_left();
  void tell_writer(Rank peer, In& i) {
    if (i.ring.publish()) inbox(peer).ring_doorbell();
  }
  void broken(Rank peer, const Failure& failure) {
    lost(peer, {failure.kind(), fmt::format("rank {}: {}", peer.value, failure.what()), peer});
  }

  std::vector<Segment> segments_;  // by rank, ours too
  std::vector<Inbox> inboxes_;     // views of them
  std::vector<Out> outs_;
  std::vector<In> ins_;
  std::atomic<std::uint32_t> wakes_{0};
  std::uint32_t wakes_seen_ = 0;  // driver only
  std::unique_ptr<Control> control_;
};

}  // namespace cohort::net
