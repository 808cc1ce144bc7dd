#include "cohort/net/shm_rings.h"

namespace cohort::net {
namespace {

constexpr std::uint64_t kMostBytes = 1ULL << 46;  // no message is longer: a length beyond is garbage

}  // namespace

bool ShmRings::pull(Rank from) {
  In& i = in(from);
  const bool leaving = i.leaving.load();  // before the look at the ring: its goodbye came after its last byte
  if (i.ring.empty()) {
    if (leaving && !mailbox_.failed(from)) events_.lost(from, left_error(from), true);
    return false;
  }
  if (mailbox_.failed(from)) {  // nobody wants it, but its writer shall not wait for ever
    i.landing.reset();
    i.ring.drain();
    tell_writer(from, i);
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
  std::size_t quiet = 0;  // bytes read that the writer was not told of
  for (std::size_t held = i.ring.available(); held > 0; moved = true) {
    std::size_t took = 0;
    if (i.landing) {
      const ConstBytes piece = i.ring.peek(std::min<std::uint64_t>({held, i.landing->left(), kPieceBytes}));
      i.landing->copy(piece);
      took = round_up(piece.size(), kRingStep);
    } else {
      took = read_message(from, i, held);
      if (took == 0) break;
    }
    i.ring.skip(took);
    if (i.landing && i.landing->complete()) {
      mailbox_.landed(std::move(*i.landing));
      i.landing.reset();
    }
    held -= took;
    quiet += took;
    if (quiet < kPieceBytes) continue;
    tell_writer(from, i);
    quiet = 0;
  }
  if (quiet > 0) tell_writer(from, i);
  return moved;
}

// At a header: delivers a small message that is all here, or starts the landing of another. Returns the bytes used, 0 when the mailbox
// has no room for it now.
std::size_t ShmRings::read_message(Rank from, In& i, std::size_t held) {
  RingHeader header;
  std::memcpy(&header, i.ring.peek(kRingStep).data(), sizeof header);  // a copy: the writer could change it under our eyes
  if (header.length > kMostBytes) throw_failure(Kind::corrupt, "shm: a message of {} bytes was announced", header.length);
  const Tag tag{header.channel, header.number};
  i.paused = true;  // before the question: on_room() may answer from another thread at once
  const ConstBytes payload = i.ring.peek_after_header(std::min<std::uint64_t>(header.length, kWholeBytes));
  if (payload.size() == header.length && kRingStep + header.length <= held) {
    if (!mailbox_.deliver(from, tag, payload)) return 0;
    i.paused = false;
    return kRingStep + round_up(header.length, kRingStep);
  }
  i.landing = mailbox_.arrive(from, tag, header.length);
  if (!i.landing) return 0;
  i.paused = false;
  return kRingStep;
}

}  // namespace cohort::net
