#include "cohort/net/shm_rings.h"

namespace cohort::net {

ShmRings::ShmRings(Mailbox& mailbox, ShmPlan plan, Events events)
    : me_(plan.me),
      mailbox_(mailbox),
      events_(std::move(events)),
      segments_(std::move(plan.peers)),
      bells_(std::move(plan.bells)),
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
    if (!bells_.empty()) inboxes_[i].set_bell(bells_[i].get());
  }
  if (peers_.empty()) return;
  Control::Events ends{[this](Rank peer, const Error& error) { events_.lost(peer, error, false); },
                       [this](Rank peer) {
                         in(peer).leaving = true;
                         events_.prod();
                       }};
  control_ = plan.wires.empty() ? memory_control(me_, inbox(me_), inboxes_, std::move(ends))
                                : wire_control(me_, std::move(plan.wires), std::move(ends));
}

ShmRings::~ShmRings() {
  if (control_) control_->goodbye();
  control_.reset();  // joins the monitor, which calls into us
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

bool ShmRings::doze(std::uint32_t how) {
  if (!has(me_)) return true;
  inbox(me_).head().sleeping = how;  // from here on whoever changes something rings
  if (!work_left()) return true;
  rouse();
  return false;
}

void ShmRings::sleep(Deadline deadline) {
  InboxHead& head = inbox(me_).head();
  const auto seen = head.doorbell.load();
  if (!doze(InboxHead::kOnDoorbell)) return;
  futex_wait(head.doorbell, seen, deadline);
  rouse();
}

void ShmRings::wake() noexcept {
  wakes_.fetch_add(1);
  inbox(me_).ring_doorbell();
}

bool ShmRings::work_left() {
  if (wakes_.load() != wakes_seen_) return true;
  for (const Rank r : peers_) {
    if (!in(r).paused && !in(r).ring.empty()) return true;
    Out& o = out(r);
    if (!o.busy) continue;
    const std::lock_guard lock(o.mutex);
    o.ring.counts().hungry = 1;  // before the look: a reader that makes room later rings
    if (!o.queue.empty() && o.ring.has_room()) return true;
  }
  return false;
}

}  // namespace cohort::net
