#include "cohort/net/shm/rings.h"

namespace cohort::net {
namespace {

constexpr std::uint64_t kMaxBytes = 1ULL << 46;  // no message is longer: a larger length is corrupt

}  // namespace

bool ShmRings::pull(Rank from) {
  In& i = in(from);
  const bool leaving = i.leaving.load();  // read before the ring: its goodbye came after its last byte
  if (i.ring.empty()) {
    if (leaving && !mailbox_.failed(from)) events_.lost(from, left_error(from), true);
    return false;
  }
  if (mailbox_.failed(from)) {  // nobody reads it any more, but its writer must not wait for ever
    i.slot.reset();
    i.ring.drain();
    wake_writer(from, i);
    return false;
  }
  if (i.paused.load(std::memory_order_relaxed)) return false;
  try {
    return read_some(from, i);
  } catch (const Failure& failure) {
    broken(from, failure);
    return true;
  }
}

bool ShmRings::read_some(Rank from, In& i) {
  bool moved = false;
  std::size_t unpublished = 0;  // bytes read that the writer does not know of
  for (std::size_t held = i.ring.available(); held > 0; moved = true) {
    std::size_t took = 0;
    if (i.slot) {
      const ConstBytes piece = i.ring.peek(std::min<std::uint64_t>({held, i.slot->left(), kPieceBytes}));
      i.slot->copy(piece);
      took = round_up(piece.size(), kRingStep);
    } else {
      took = read_message(from, i, held);
      if (took == 0) break;
    }
    i.ring.skip(took);
    if (i.slot && i.slot->complete()) {
      mailbox_.finish(std::move(*i.slot));
      i.slot.reset();
    }
    held -= took;
    unpublished += took;
    if (unpublished < kPieceBytes) continue;
    wake_writer(from, i);
    unpublished = 0;
  }
  if (unpublished > 0) wake_writer(from, i);
  return moved;
}

// At a header: delivers a small message that is complete, or begins to receive a larger one. Returns the bytes used, 0 when the mailbox
// has no room for it now.
std::size_t ShmRings::read_message(Rank from, In& i, std::size_t held) {
  RingHeader header;
  std::memcpy(&header, i.ring.peek(kRingStep).data(), sizeof header);  // a copy: the writer could change it while we read
  if (header.length > kMaxBytes) throw_failure(Kind::corrupt, "shm: a message header claims {} bytes", header.length);
  const Tag tag{header.channel, header.number};
  i.paused = true;  // set first: on_room() may reset it from another thread at once
  const ConstBytes payload = i.ring.peek_after_header(std::min<std::uint64_t>(header.length, kWholeBytes));
  if (payload.size() == header.length && kRingStep + header.length <= held) {
    if (!mailbox_.deliver(from, tag, payload)) return 0;
    i.paused = false;
    return kRingStep + round_up(header.length, kRingStep);
  }
  i.slot = mailbox_.arrive(from, tag, header.length);
  if (!i.slot) return 0;
  i.paused = false;
  return kRingStep;
}

}  // namespace cohort::net
