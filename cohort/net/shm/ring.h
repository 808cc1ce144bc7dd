// The memory of the shm transport: an inbox per rank, in it one ring buffer per peer, a futex word to sleep on, and the owner's exit state.
// A ring has one writer (a peer) and one reader (the inbox's owner), each with its own count of bytes; counts only grow, positions are
// counts modulo the ring's size. Everything in a ring is aligned to 16 bytes, so a header never wraps.
// Threads: one writer and one reader at a time. Failure: Kind::corrupt when the other side's count is impossible.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/futex.h"
#include "cohort/base/segment.h"
#include "cohort/net/shm/stream_copy.h"

namespace cohort::net {

inline constexpr std::size_t kRingStep = 16;
inline constexpr std::size_t kStreamBytes = 2_KiB;  // from here on non-temporal stores are faster, by 2 to 10 times
inline constexpr std::size_t kApart = 128;          // two cache lines: the prefetcher fetches lines in pairs

struct RingHeader {  // before each payload
  std::uint32_t channel = 0;
  std::uint32_t number = 0;
  std::uint64_t length = 0;
};
static_assert(sizeof(RingHeader) == kRingStep);

struct RingCounts {
  alignas(kApart) std::atomic<std::uint64_t> written;  // by the writer
  Word writer_waits;                                   // the writer waits for room: wake it after reading
  alignas(kApart) std::atomic<std::uint64_t> read;     // by the reader
};

struct InboxHead {
  std::uint64_t ranks;
  std::uint64_t ring_bytes;
  alignas(kApart) Word sleeping;  // the owner sleeps (or is about to), and how: peers that write to its rings wake it
  alignas(kApart) Word wake_word;
  alignas(kApart) Word exit_events;  // changes when some rank's exit_state changes; for ranks that are threads
  alignas(kApart) Word exit_state;   // of the owner: bits kAborted, kLeft
  std::int32_t about;                // the rank that caused the abort
  std::uint32_t length;
  char text[1024];
  static constexpr std::uint32_t kAborted = 1, kLeft = 2;
  static constexpr std::uint32_t kOnFutex = 1, kInPoll = 2;  // values of `sleeping`
};
static_assert(sizeof(InboxHead) <= kPageBytes && sizeof(RingCounts) <= kPageBytes);

class Ring {
 public:
  Ring() = default;
  Ring(std::byte* at, std::size_t size) : counts_(reinterpret_cast<RingCounts*>(at)), data_(at + kPageBytes), size_(size) {}
  RingCounts& counts() const { return *counts_; }

 protected:
  // Contiguous bytes from a count on.
  Bytes piece(std::uint64_t count, std::size_t most) const {
    const std::size_t at = count & (size_ - 1);
    return {data_ + at, std::min(most, size_ - at)};
  }
  RingCounts* counts_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;  // a power of two
};

class RingWriter : public Ring {
 public:
  using Ring::Ring;
  // At least `wanted` when that much is free; reads the reader's count, a cache line of another core, only when it must.
  std::size_t room(std::size_t wanted = 1) {
    if (size_ - (written_ - read_) >= wanted) return size_ - (written_ - read_);
    const std::uint64_t read = counts_->read.load(std::memory_order_acquire);
    const std::uint64_t used = written_ - read;
    if (used > size_ || used % kRingStep != 0) throw_failure(Kind::corrupt, "shm: a ring of {} bytes claims to hold {}", size_, used);
    read_ = read;
    return size_ - used;
  }
  bool has_room() const { return written_ - counts_->read.load() != size_; }
  void put(ConstBytes bytes) {  // the caller has asked for room(); visible to the reader after publish()
    const Bytes first = piece(written_, bytes.size());
    copy(first.data(), bytes.data(), first.size());
    if (first.size() < bytes.size()) copy(data_, bytes.data() + first.size(), bytes.size() - first.size());
    written_ += round_up(bytes.size(), kRingStep);
  }
  void publish() { counts_->written.store(written_); }  // sequentially consistent with the check of `sleeping`

 private:
  static void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes >= kStreamBytes)
      stream_copy(to, from, bytes);
    else if (bytes > 0)
      std::memcpy(to, from, bytes);
  }
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;  // as last seen
};

class RingReader : public Ring {
 public:
  using Ring::Ring;
  bool empty() const { return counts_->written.load() == read_; }
  std::size_t available() const {
    const std::uint64_t held = counts_->written.load(std::memory_order_acquire) - read_;
    if (held > size_ || held % kRingStep != 0) throw_failure(Kind::corrupt, "shm: a ring of {} bytes claims to hold {}", size_, held);
    return held;
  }
  ConstBytes peek(std::size_t most) const { return piece(read_, most); }
  ConstBytes peek_after_header(std::size_t most) const { return piece(read_ + kRingStep, most); }
  void skip(std::size_t bytes) { read_ += round_up(bytes, kRingStep); }
  void drain() { read_ = counts_->written.load(); }  // skips everything
  bool publish() {                                   // true: the writer waits for room
    counts_->read.store(read_);
    return counts_->writer_waits.load() != 0 && counts_->writer_waits.exchange(0) != 0;
  }

 private:
  std::uint64_t read_ = 0;
};

// A view of a rank's segment; ShmRings owns the Segment itself.
class Inbox {
 public:
  Inbox() = default;
  explicit Inbox(const Segment& segment) : base_(segment ? segment.data() : nullptr), bytes_(segment.size()) {}
  static std::size_t bytes_for(std::size_t ranks, std::size_t ring_bytes) { return kPageBytes + ranks * (kPageBytes + ring_bytes); }
  void format(std::size_t ranks, std::size_t ring_bytes) const;
  void check(std::size_t ranks, std::size_t ring_bytes) const;  // Kind::corrupt when it is no such inbox
  InboxHead& head() const { return *reinterpret_cast<InboxHead*>(base_); }
  std::byte* ring(Rank writer, std::size_t ring_bytes) const {
    return base_ + kPageBytes + static_cast<std::size_t>(writer.value) * (kPageBytes + ring_bytes);
  }
  void wake_owner() const {  // wakes the owner if it sleeps
    const std::uint32_t how = head().sleeping.load();
    if (how == 0) return;
    if (how == InboxHead::kInPoll) return notify_pipe();
    head().wake_word.fetch_add(1);
    futex_wake(head().wake_word, 1);
  }
  void set_wake_pipe(int fd) { wake_pipe_ = fd; }
  void notify_exit_event() const {
    head().exit_events.fetch_add(1);
    futex_wake(head().exit_events, 1);
  }

 private:
  void notify_pipe() const;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  int wake_pipe_ = -1;  // the owner's pipe, opened here
};

}  // namespace cohort::net
