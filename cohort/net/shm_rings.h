// This rank's ends of the rings to the peers whose memory it maps: what the shm transport moves bytes with, inside a mesh of its own
// (shm_mesh.h) or of one that reaches other peers by other means (mixed_mesh.h).
// shm_send.cc fills the peers' inboxes, shm_receive.cc empties ours, shm_rings.cc waits and hears of their ends.
// Owner: the mesh. Threads: step(), doze() and rouse() are the driver's, the rest any. Failure: told through Events, see link.h.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
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

class ShmRings {
 public:
  struct Events {
    std::function<void(Rank, const Error&, bool polite)> lost;
    std::function<void()> prod;  // step() soon
  };
  // Peers of other hosts have no inbox in the plan; a rank that shares with nobody needs none itself.
  ShmRings(Mailbox& mailbox, ShmPlan plan, Events events);
  ~ShmRings();  // says goodbye

  bool has(Rank peer) const { return static_cast<bool>(segments_[static_cast<std::size_t>(peer.value)]); }
  std::shared_ptr<Sending> launch(Rank to, ConstBytes bytes, Tag tag);  // nullptr: done at once
  bool step();
  // Says that this rank sleeps from here on, and how (InboxHead). False: something is left to do, it must not.
  bool doze(std::uint32_t how);
  void rouse() {
    if (has(me_)) inbox(me_).head().sleeping = 0;
  }
  void sleep(Deadline deadline);  // on our doorbell, until something may move
  void wake() noexcept;           // ends sleep() early, or the next one
  void abort(const Error& error) noexcept {
    if (control_) control_->abort(error);
  }
  void failed(Rank peer) noexcept;  // drops its queues
  void thawed(Rank peer) { in(peer).paused = false; }

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
    events_.lost(peer, {failure.kind(), fmt::format("rank {}: {}", peer.value, failure.what()), peer}, false);
  }

  const Rank me_;
  Mailbox& mailbox_;
  const Events events_;
  std::vector<Segment> segments_;  // by rank, ours too
  std::vector<Fd> bells_;          // of peers that sleep in poll(2): where to write
  std::vector<Inbox> inboxes_;     // views of the segments
  std::vector<Rank> peers_;        // who shares memory with us
  std::vector<Out> outs_;
  std::vector<In> ins_;
  std::atomic<std::uint32_t> wakes_{0};
  std::uint32_t wakes_seen_ = 0;  // driver only
  std::unique_ptr<Control> control_;
};

}  // namespace cohort::net
