// This rank's ends of the rings to the peers whose memory it maps, for the shm transport (shm_transport.h) and for the mixed one, which
// reaches other peers over tcp (mixed_transport.h).
// send.cc writes to the peers' inboxes, receive.cc reads ours, rings.cc waits and handles peers that leave, abort or die.
// Owner: the transport. Threads: step(), begin_sleep() and end_sleep() are the driver's, the rest any. Failure: through Events, see link.h.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cohort/net/shm/peer_monitor.h"
#include "cohort/net/shm/ring.h"
#include "cohort/net/shm/shm.h"
#include "cohort/net/transport/transport_base.h"

namespace cohort::net {

inline constexpr std::size_t kPieceBytes = 32_KiB;  // published at a time, so that both sides copy at the same time
inline constexpr std::size_t kWholeBytes = 4_KiB;   // messages up to here are delivered in one piece

class ShmRings {
 public:
  struct Events {
    std::function<void(Rank, const Error&, bool polite)> lost;
    std::function<void()> request_step;  // step() soon
  };
  // Peers of other hosts have no inbox in the plan; a rank that shares memory with nobody needs none itself.
  ShmRings(Mailbox& mailbox, ShmPlan plan, Events events);
  ~ShmRings();  // sends a goodbye

  bool has(Rank peer) const { return static_cast<bool>(segments_[static_cast<std::size_t>(peer.value)]); }
  std::shared_ptr<Sending> launch(Rank to, ConstBytes bytes, Tag tag);  // nullptr: done at once
  bool step();
  // Publishes that this rank sleeps from here on, and how (InboxHead). False: there is work left, it must not sleep.
  bool begin_sleep(std::uint32_t how);
  void end_sleep() {
    if (has(me_)) inbox(me_).head().sleeping = 0;
  }
  void sleep(Deadline deadline);  // on our futex word, until something may move
  void wake() noexcept;           // ends sleep() early, or the next one
  void abort(const Error& error) noexcept {
    if (peer_monitor_) peer_monitor_->abort(error);
  }
  void failed(Rank peer) noexcept;  // drops its queues
  void may_resume(Rank peer) { in(peer).paused = false; }

 private:
  struct Out {  // to one peer
    std::mutex mutex;
    RingWriter ring;                             // guarded by mutex
    std::deque<std::shared_ptr<Sending>> queue;  // guarded by mutex: not all in the ring yet
    std::size_t sent = 0;                        // guarded by mutex: bytes of the first in the queue that are in the ring
    bool begun = false;                          // guarded by mutex: its header is in the ring
    std::atomic<bool> busy{false};               // the queue is not empty
    bool put(Tag tag, ConstBytes bytes, const Inbox& reader);
  };
  struct In {  // from one peer; the driver's, but for the flags
    RingReader ring;
    std::optional<ReceiveSlot> slot;
    std::atomic<bool> paused{false};   // the mailbox is full of this peer's messages
    std::atomic<bool> leaving{false};  // its goodbye came: lost once its ring is empty
  };
  Out& out(Rank peer) { return outs_[static_cast<std::size_t>(peer.value)]; }
  In& in(Rank peer) { return ins_[static_cast<std::size_t>(peer.value)]; }
  const Inbox& inbox(Rank peer) const { return inboxes_[static_cast<std::size_t>(peer.value)]; }
  bool push(Rank to);
  bool pull(Rank from);
  bool read_some(Rank from, In& i);
  std::size_t read_message(Rank from, In& i, std::size_t held);
  bool work_left();
  void wake_writer(Rank peer, In& i) {
    if (i.ring.publish()) inbox(peer).wake_owner();
  }
  void broken(Rank peer, const Failure& failure) {
    events_.lost(peer, {failure.kind(), fmt::format("rank {}: {}", peer.value, failure.what()), peer}, false);
  }

  const Rank me_;
  Mailbox& mailbox_;
  const Events events_;
  std::vector<Segment> segments_;  // by rank, ours too
  std::vector<Fd> wake_pipes_;     // of peers that sleep in poll(2), for writing
  std::vector<Inbox> inboxes_;     // views of the segments
  std::vector<Rank> peers_;        // those that share memory with us
  std::vector<Out> outs_;
  std::vector<In> ins_;
  std::atomic<std::uint32_t> wakes_{0};
  std::uint32_t wakes_seen_ = 0;  // driver only
  std::unique_ptr<PeerMonitor> peer_monitor_;
};

}  // namespace cohort::net
