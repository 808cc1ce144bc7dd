#include "cohort/net/shm_mesh.h"

namespace cohort::net {

ShmMesh::ShmMesh(ShmPlan plan)
    : Hub(plan.me, static_cast<int>(plan.peers.size()), plan.epoch, Patience::for_ranks(static_cast<int>(plan.peers.size()))),
      segments_(std::move(plan.peers)),
      outs_(segments_.size()),
      ins_(segments_.size()) {
  const std::size_t n = segments_.size();
  if (plan.me.value < 0 || plan.me.value >= size() || !plan.own || (!plan.wires.empty() && plan.wires.size() != n))
    throw_failure(Kind::usage, "shm: a plan for rank {} with {} inboxes and {} wires: they go by rank, and ours must be there",
                  plan.me.value, n, plan.wires.size());
  segments_[static_cast<std::size_t>(plan.me.value)] = std::move(plan.own);
  for (const Segment& segment : segments_) inboxes_.emplace_back(segment);
  const std::size_t ring_bytes = inbox(plan.me).head().ring_bytes;
  for (std::size_t r = 0; r < n; ++r) {
    inboxes_[r].check(n, ring_bytes);
    outs_[r].ring = RingWriter(inboxes_[r].ring(plan.me, ring_bytes), ring_bytes);
    ins_[r].ring = RingReader(inbox(plan.me).ring(Rank{static_cast<int>(r)}, ring_bytes), ring_bytes);
  }
  if (n == 1) return;
  Control::Events events{[this](Rank peer, const Error& error) { lost(peer, error); },
                         [this](Rank peer) {
                           in(peer).leaving = true;
                           prod();
                         }};
  control_ = plan.wires.empty() ? memory_control(plan.me, inbox(plan.me), inboxes_, std::move(events))
                                : wire_control(plan.me, std::move(plan.wires), std::move(events));
}

ShmMesh::~ShmMesh() {
  if (control_) control_->goodbye();
  control_.reset();  // joins the monitor, which calls into us
}

bool ShmMesh::step() {
  wakes_seen_ = wakes_.load();
  bool moved = false;
  for (Rank r{0}; r.value < size(); ++r.value) {
    if (r == rank()) continue;
    moved |= pull(r);
    if (out(r).busy.load(std::memory_order_relaxed)) moved |= push(r);
  }
  return moved;
}

void ShmMesh::sleep(Deadline deadline) {
  InboxHead& head = inbox(rank()).head();
  head.sleeping = 1;  // from here on whoever changes something rings
  const auto seen = head.doorbell.load();
  if (!work_left()) futex_wait(head.doorbell, seen, deadline);
  head.sleeping = 0;
}

bool ShmMesh::work_left() {
  if (wakes_.load() != wakes_seen_) return true;
  for (Rank r{0}; r.value < size(); ++r.value) {
    if (r == rank()) continue;
    if (!in(r).paused && !in(r).ring.empty()) return true;
    Out& o = out(r);
    if (!o.busy) continue;
    const std::lock_guard lock(o.mutex);
    o.ring.counts().hungry = 1;  // before the look: a reader that makes room later rings
    if (!o.queue.empty() && o.ring.has_room()) return true;
  }
  return false;
}

void ShmMesh::wake() noexcept {
  wakes_.fetch_add(1);
  inbox(rank()).ring_doorbell();
}

}  // namespace cohort::net
