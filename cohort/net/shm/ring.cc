#include "cohort/net/shm/ring.h"

#include <bit>

#include "cohort/net/shm/wake_pipe.h"

namespace cohort::net {

void Inbox::format(std::size_t ranks, std::size_t ring_bytes) const {
  if (!std::has_single_bit(ring_bytes) || ring_bytes < kPageBytes)
    throw_failure(Kind::usage, "shm: a ring of {} bytes: it must be a power of two of at least {}", ring_bytes, kPageBytes);
  head().ranks = ranks;
  head().ring_bytes = ring_bytes;
}

void Inbox::check(std::size_t ranks, std::size_t ring_bytes) const {
  if (base_ == nullptr) throw_failure(Kind::usage, "shm: an inbox is missing; every peer's must be opened before the links is made");
  const bool fits = bytes_ >= sizeof(InboxHead) && head().ranks == ranks && head().ring_bytes == ring_bytes;
  if (!fits || !std::has_single_bit(ring_bytes) || ring_bytes < kPageBytes || bytes_ != bytes_for(ranks, ring_bytes))
    throw_failure(Kind::corrupt, "shm: {} bytes of memory are not an inbox for {} ranks with rings of {} bytes", bytes_, ranks, ring_bytes);
}

void Inbox::notify_pipe() const {
  std::uint32_t how = InboxHead::kInPoll;
  if (wake_pipe_ < 0 || !head().sleeping.compare_exchange_strong(how, 0)) return;  // one of us is enough
  notify_wake_pipe(wake_pipe_);
}

}  // namespace cohort::net
