#include "cohort/net/tcp/send_stream.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace cohort::net {
namespace {

constexpr int kMessagesPerPush = 64;  // so that other peers get their turn

void append(std::vector<std::byte>& to, ConstBytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

// The block of an offset in the frame's body part, and the offset inside the block and its trailer.
struct Place {
  std::uint64_t block, inside, length;  // length: of that block's bytes, without the trailer
};
Place place(std::uint64_t offset, std::uint64_t body) {
  constexpr std::uint64_t kStride = kBlockBytes + kTrailerBytes;
  const std::uint64_t block = offset / kStride;
  return {block, offset % kStride, std::min<std::uint64_t>(kBlockBytes, body - std::min(body, block * kBlockBytes))};
}

}  // namespace

std::vector<std::byte> void_rest(const HeaderBytes& header, std::uint64_t length, std::uint64_t sent, std::uint32_t check) {
  std::vector<std::byte> out;
  if (sent < kHeaderBytes) append(out, ConstBytes(header).subspan(sent));
  const std::uint64_t offset = std::max<std::uint64_t>(sent, kHeaderBytes) - kHeaderBytes;
  Place at = place(offset, length);
  if (at.inside > at.length) {  // the current block is valid, the next one will be void
    append(out, ConstBytes(good_trailer(check)).subspan(at.inside - at.length));
    at = place(offset + at.length + kTrailerBytes - at.inside, length);
  }
  if (sent + out.size() == encoded_bytes(length)) return out;  // that was the last block
  out.resize(out.size() + (at.length - at.inside));
  append(out, void_trailer());
  return out;
}

SendStream::SendStream(SocketView to_peer, Rank to, bool far) : to_peer_(to_peer), to_(to), checked_(far && to_peer.tls == nullptr) {
  if (checked_) msg_zerocopy_.enable(to_peer.fd);
}

// What follows item.sent, up to the end of its block: at most header, bytes, trailer. In a zero-copy send, one of them alone: header and
// trailer do not stay where they are until the kernel has released them.
void SendStream::gather(Item& item, Parts& parts) {
  if (item.sent == 0) {
    const std::uint8_t flags = checked_ && !item.body.empty() ? std::uint8_t{kChecksumFlag} : std::uint8_t{0};
    item.header = encode_header({.type = kDataFrame, .flags = flags, .length = item.body.size(), .tag = item.tag, .sequence = sequence_});
  }
  if (item.sent < kHeaderBytes) parts.add(ConstBytes(item.header).subspan(item.sent));
  if (item.body.empty()) return;
  const Place at = place(std::max<std::uint64_t>(item.sent, kHeaderBytes) - kHeaderBytes, item.body.size());
  const ConstBytes bytes = item.body.subspan(at.block * kBlockBytes, at.length);
  if (checked_ && item.checked_block != at.block) {
    item.check = crc32c(bytes);
    item.checked_block = at.block;
  }
  const std::uint64_t left = at.inside < at.length ? at.length - at.inside : 0;
  const bool zero_copy = item.sending && msg_zerocopy_.pays_for(left);
  if (zero_copy && parts.count > 0) {
    parts.flags = MSG_MORE;
    return;
  }
  if (left > 0) parts.add(bytes.last(left));
  if (zero_copy) {
    parts.flags = MSG_ZEROCOPY;
    return;
  }
  parts.trailer = good_trailer(item.check);
  parts.add(ConstBytes(parts.trailer).subspan(at.inside > at.length ? at.inside - at.length : 0));
}

IoResult SendStream::send_parts(Item& item, const Parts& parts) {
  const IoResult r = write_some(to_peer_, {parts.at, parts.count}, parts.flags);
  if ((parts.flags & MSG_ZEROCOPY) == 0) return r;
  if (r.problem == ENOBUFS) return write_some(to_peer_, {parts.at, parts.count});  // the limit of pinned memory is reached: copy
  if (r.state == IoState::moved) msg_zerocopy_.sent(item.sending);
  return r;
}

bool SendStream::write(Item& item, Push& result) {
  for (std::uint64_t limit = item.sent + kBlockBytes; item.sent < item.total;) {
    if (item.sent >= limit) return false;                    // reading gets its turn
    if (item.sending && !item.sending->pin()) return false;  // cancelled: its link is about to fail, and stop() to clean up
    if (item.sending) item.body = item.sending->bytes;       // it may be a copy by now
    Parts parts;
    if (item.raw.empty())
      gather(item, parts);
    else
      parts.add(ConstBytes(item.raw).subspan(item.sent));
    const IoResult r = send_parts(item, parts);
    if (item.sending) item.sending->unpin();
    result.broken = r.state == IoState::closed;
    result.problem = r.problem;
    if (r.state != IoState::moved) return false;
    result.moved = true;
    if (item.sent == 0) ++sequence_;
    item.sent += r.bytes;
  }
  const IoResult left = flush(to_peer_);
  if (left.state == IoState::closed) result = {.moved = result.moved, .broken = true, .problem = left.problem};
  return left.state == IoState::moved;
}

void SendStream::write_queue(Push& result) {
  if (broken_) result = {.moved = result.moved, .broken = true, .problem = *broken_};
  for (int turns = 0; turns < kMessagesPerPush && !result.broken; ++turns) {
    if (queue_.empty() || !write(queue_.front(), result)) break;
    const auto& sending = queue_.front().sending;
    if (sending && msg_zerocopy_.whole(sending)) sending->set_done();
    queue_.pop_front();
    if (stopped_)
      ::shutdown(to_peer_.fd, SHUT_WR);  // that was the last frame: a peer that does not read sees at least the end of the stream
  }
  if (result.broken) {
    broken_ = result.problem;
    queue_.clear();
  }
  update_state();
}

std::shared_ptr<Sending> SendStream::begin(ConstBytes bytes, Tag tag, Push& result) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return std::make_shared<Sending>(to_, tag, bytes);  // the link has failed meanwhile, which the waiter will find
  Item item;
  item.body = bytes;
  item.tag = tag;
  item.total = encoded_bytes(bytes.size());
  const bool first = queue_.empty();
  const bool deferred = msg_zerocopy_.pays_for(bytes.size());  // in use after this call, whatever the socket takes
  if (first && !deferred && write(item, result)) return nullptr;
  auto sending = std::make_shared<Sending>(to_, tag, bytes);
  item.sending = sending;
  queue_.push_back(std::move(item));
  if (first && deferred) write_queue(result);
  update_state();
  return sending;
}

SendStream::Push SendStream::push() {
  Push result;
  const std::lock_guard lock(mutex_);
  if (msg_zerocopy_.in_flight()) result.moved = msg_zerocopy_.reap(to_peer_.fd);
  write_queue(result);
  return result;
}

void SendStream::update_state() {
  const bool unreported = broken_ && !stopped_;  // begin() and others may have found it where no caller looked
  waiting_.store(!queue_.empty() || unreported, std::memory_order_release);
  in_flight_.store(msg_zerocopy_.in_flight(), std::memory_order_release);
}

void SendStream::drop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  queue_.clear();
  update_state();
}

void SendStream::stop(std::uint16_t last_type, ConstBytes last_body) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(stopped_, true)) return;
  if (broken_) return update_state();
  Item last;
  if (!queue_.empty() && queue_.front().sent > 0) {
    const Item& cut = queue_.front();
    append(last.raw, void_rest(cut.header, cut.body.size(), cut.sent, cut.check));
  }
  append(last.raw, encode_header({.type = last_type, .flags = 0, .length = last_body.size(), .tag = {}, .sequence = sequence_}));
  append(last.raw, last_body);
  if (!last_body.empty()) append(last.raw, good_trailer(0));
  last.total = last.raw.size();
  queue_.clear();
  queue_.push_back(std::move(last));
  update_state();
}

}  // namespace cohort::net
