// The memory side of the mailbox: borrowed buffers, and arriving messages that are written into them.
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "cohort/net/transport/mailbox.h"

namespace cohort::net {
namespace {

constexpr std::size_t kSinkBytes = 64_KiB;

Bytes sink(std::size_t most) {
  thread_local std::vector<std::byte> memory(kSinkBytes);
  return Bytes(memory).first(std::min(most, kSinkBytes));
}

}  // namespace

bool BorrowedBuffer::pin() {
  for (;;) {
    const std::uint32_t before = state_.fetch_or(kPinned, std::memory_order_acquire);
    if ((before & (kCancelled | kHeld)) == 0) return true;
    unpin();
    if ((before & kCancelled) != 0) return false;
    sched_yield();
  }
}

BorrowedBuffer::Hold::Hold(BorrowedBuffer& buffer) : buffer_(buffer) {
  buffer_.state_.fetch_or(kHeld, std::memory_order_acq_rel);
  buffer_.await_unpinned();
}

void BorrowedBuffer::cancel() {
  state_.fetch_or(kCancelled, std::memory_order_acq_rel);
  await_unpinned();
}

void BorrowedBuffer::await_unpinned() const {
  while ((state_.load(std::memory_order_acquire) & kPinned) != 0) sched_yield();
}

void Receive::finish(std::optional<Error> error) {
  if (done()) return;
  error_ = std::move(error);
  set_done();
}

Bytes ReceiveSlot::space(std::size_t most) {
  most = static_cast<std::size_t>(std::min<std::uint64_t>(most, left()));
  if (receive_ && receive_->pin()) {
    pinned_ = true;
    return receive_->into_.subspan(done_, most);
  }
  receive_.reset();
  if (!unexpected_) return sink(most);
  unexpected_->bytes.resize(done_ + most);  // grows with what comes, so that an absurd length in a header allocates nothing
  return Bytes(unexpected_->bytes).subspan(done_, most);
}

void ReceiveSlot::filled(std::size_t bytes) {
  if (pinned_) receive_->unpin();
  pinned_ = false;
  done_ += bytes;
}

void ReceiveSlot::copy(ConstBytes bytes) {
  while (!bytes.empty()) {
    const Bytes to = space(std::min(bytes.size(), 256_KiB));
    std::memcpy(to.data(), bytes.data(), to.size());
    filled(to.size());
    bytes = bytes.subspan(to.size());
  }
}

}  // namespace cohort::net
