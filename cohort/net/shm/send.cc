#include "cohort/net/shm/rings.h"

namespace cohort::net {

// Writes as much of the message as the ring has room for, from where the last call stopped; true when that was all of it.
bool ShmRings::Out::put(Tag tag, ConstBytes bytes, const Inbox& reader) {
  std::size_t room = ring.room(kRingStep + round_up(bytes.size() - sent, kRingStep));
  const auto publish = [&] {
    ring.publish();
    reader.wake_owner();
  };
  if (!begun) {
    if (room < kRingStep) return false;
    const RingHeader header{tag.channel, tag.number, bytes.size()};
    ring.put(bytes_of(header));
    room -= kRingStep;
    begun = true;
    if (bytes.size() <= std::min(room, kWholeBytes)) {
      ring.put(bytes);
      sent = bytes.size();
    }
    if (sent == bytes.size() || room == 0) publish();
  }
  while (sent < bytes.size() && (room > 0 || (room = ring.room()) > 0)) {
    const std::size_t piece = std::min({bytes.size() - sent, room, kPieceBytes});
    ring.put(bytes.subspan(sent, piece));
    publish();
    sent += piece;
    room -= round_up(piece, kRingStep);
  }
  if (sent < bytes.size()) return false;
  begun = false;
  sent = 0;
  return true;
}

std::shared_ptr<Sending> ShmRings::launch(Rank to, ConstBytes bytes, Tag tag) {
  Out& o = out(to);
  try {
    const std::lock_guard lock(o.mutex);
    if (o.queue.empty() && o.put(tag, bytes, inbox(to))) return nullptr;
    o.queue.push_back(std::make_shared<Sending>(to, tag, bytes));
    o.busy = true;
    return o.queue.back();
  } catch (const Failure& failure) {
    broken(to, failure);
  }
  throw Failure{mailbox_.failure(to).value()};
}

bool ShmRings::push(Rank to) {
  Out& o = out(to);
  bool moved = false;
  try {
    const std::lock_guard lock(o.mutex);
    if (mailbox_.failed(to)) o.queue.clear();  // queued while the link failed
    while (!o.queue.empty()) {
      Sending& first = *o.queue.front();
      if (!first.pin()) break;  // cancelled: its link is about to fail
      const std::size_t before = o.sent;
      const bool all = o.put(first.tag, first.bytes, inbox(to));
      first.unpin();
      moved = moved || all || o.sent != before;
      if (!all) break;
      first.set_done();
      o.queue.pop_front();
    }
    o.busy = !o.queue.empty();
  } catch (const Failure& failure) {
    broken(to, failure);
  }
  return moved;
}

void ShmRings::failed(Rank peer) noexcept {
  in(peer).paused = false;
  const std::lock_guard lock(out(peer).mutex);
  out(peer).queue.clear();
  out(peer).busy = false;
}

}  // namespace cohort::net
