#include "cohort/net/shm/rings.h"

namespace cohort::net {

ShmRings::ShmRings(Mailbox& mailbox, ShmPlan plan, Events events)
    : me_(plan.me),
      mailbox_(mailbox),
      events_(std::move(events)),
      segments_(std::move(plan.peers)),
      wake_pipes_(std::move(plan.wake_pipes)),
      outs_(segments_.size()),
      ins_(segments_.size()) {
  const std::size_t n = segments_.size();
  segments_[static_cast<std::size_t>(me_.value)] = std::move(plan.own);
  for (const Segment& segment : segments_) inboxes_.emplace_back(segment);
  if (!has(me_)) return;
  const std::size_t ring_bytes = inbox(me_).head().ring_bytes;
  for (Rank r{0}; r.value < static_cast<int>(n); ++r.value) {
    const auto i = static_cast<std::size_t>(r.value);
    if (!segments_[i]) continue;
    inboxes_[i].check(n, ring_bytes);
    out(r).ring = RingWriter(inboxes_[i].ring(me_, ring_bytes), ring_bytes);
    in(r).ring = RingReader(inbox(me_).ring(r, ring_bytes), ring_bytes);
    if (r == me_) continue;
    peers_.push_back(r);
    if (!wake_pipes_.empty()) inboxes_[i].set_wake_pipe(wake_pipes_[i].get());
  }
  if (peers_.empty()) return;
  PeerMonitor::Events monitor_events{[this](Rank peer, const Error& error) { events_.lost(peer, error, false); },
                                     [this](Rank peer) {
                                       in(peer).leaving = true;
                                       events_.request_step();
                                     }};
  peer_monitor_ = plan.connections.empty() ? memory_peer_monitor(me_, inbox(me_), inboxes_, std::move(monitor_events))
                                           : connection_peer_monitor(me_, std::move(plan.connections), std::move(monitor_events));
}

ShmRings::~ShmRings() {
  if (peer_monitor_) peer_monitor_->goodbye();
  peer_monitor_.reset();  // joins the monitor, which calls into us
}

bool ShmRings::step() {
  wakes_seen_ = wakes_.load();
  bool moved = false;
  for (const Rank r : peers_) {
    moved |= pull(r);
    if (out(r).busy.load(std::memory_order_relaxed)) moved |= push(r);
  }
  return moved;
}

bool ShmRings::begin_sleep(std::uint32_t how) {
  if (!has(me_)) return true;
  inbox(me_).head().sleeping = how;  // from here on peers that write wake us
  if (!work_left()) return true;
  end_sleep();
  return false;
}

void ShmRings::sleep(Deadline deadline) {
  InboxHead& head = inbox(me_).head();
  const auto seen = head.wake_word.load();
  if (!begin_sleep(InboxHead::kOnFutex)) return;
  futex_wait(head.wake_word, seen, deadline);
  end_sleep();
}

void ShmRings::wake() noexcept {
  wakes_.fetch_add(1);
  inbox(me_).wake_owner();
}

bool ShmRings::work_left() {
  if (wakes_.load() != wakes_seen_) return true;
  for (const Rank r : peers_) {
    if (!in(r).paused && !in(r).ring.empty()) return true;
    Out& o = out(r);
    if (!o.busy) continue;
    const std::lock_guard lock(o.mutex);
    o.ring.counts().writer_waits = 1;  // before the check: a reader that makes room later wakes us
    if (!o.queue.empty() && o.ring.has_room()) return true;
  }
  return false;
}

}  // namespace cohort::net
