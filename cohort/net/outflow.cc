#include "cohort/net/outflow.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace cohort::net {
namespace {

constexpr int kTurns = 64;  // messages per push, so that other peers get theirs

void append(std::vector<std::byte>& to, ConstBytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

// Where an offset of the frame's body part lies: in which block, and how far inside it and its stamp.
struct Place {
  std::uint64_t block, inside, length;  // length: of that block's bytes, without the stamp
};
Place place(std::uint64_t offset, std::uint64_t body) {
  constexpr std::uint64_t kStride = kBlockBytes + kStampBytes;
  const std::uint64_t block = offset / kStride;
  return {block, offset % kStride, std::min<std::uint64_t>(kBlockBytes, body - std::min(body, block * kBlockBytes))};
}

}  // namespace

std::vector<std::byte> void_rest(const HeaderBytes& header, std::uint64_t length, std::uint64_t sent, std::uint32_t check) {
  std::vector<std::byte> out;
  if (sent < kHeaderBytes) append(out, ConstBytes(header).subspan(sent));
  const std::uint64_t offset = std::max<std::uint64_t>(sent, kHeaderBytes) - kHeaderBytes;
  Place at = place(offset, length);
  if (at.inside > at.length) {  // the block under way counts, the next one will not
    append(out, ConstBytes(good_stamp(check)).subspan(at.inside - at.length));
    at = place(offset + at.length + kStampBytes - at.inside, length);
  }
  if (sent + out.size() == encoded_bytes(length)) return out;  // that was the last block
  out.resize(out.size() + (at.length - at.inside));
  append(out, void_stamp());
  return out;
}

Outflow::Outflow(Connection to_peer, Rank to, bool far, bool paced) : to_peer_(to_peer), to_(to), checked_(far && to_peer.tls == nullptr) {
  if (to_peer.tls != nullptr) return;
  far ? zerocopy_.enable(to_peer.fd) : lender_.enable(to_peer.fd, !paced);
}

// What follows item.sent, up to the end of the block it lies in: at most header, bytes, stamp. Where memory is handed over instead of
// copied, one of them alone: header and stamp do not stay where they are until the kernel has let go.
void Outflow::gather(Item& item, Parts& parts) {
  if (item.sent == 0) {
    const int flags = (checked_ && !item.body.empty() ? kCheckedFlag : 0) | (item.lent ? kLentFlag : 0);
    item.header = encode_header({.type = kDataFrame,
                                 .flags = static_cast<std::uint8_t>(flags),
                                 .length = item.body.size(),
                                 .tag = item.tag,
                                 .sequence = sequence_});
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
  const bool fly = item.sending && zerocopy_.pays_for(left);
  if ((fly || item.lent) && parts.count > 0) {
    parts.flags = MSG_MORE;
    return;
  }
  if (left > 0) parts.add(bytes.last(left));
  parts.lend = item.lent && left > 0;
  const bool last = at.block * kBlockBytes + at.length == item.body.size();
  if (item.lent && !last) parts.flags = MSG_MORE;  // more follows at once: what is left of a packet need not travel alone
  if (fly) parts.flags = MSG_ZEROCOPY;
  if (fly || parts.lend) return;
  if (item.lent && last && queue_.size() > 1) parts.flags = MSG_MORE;  // the next message follows at once and takes the stamp along
  parts.stamp = good_stamp(item.check);
  parts.add(ConstBytes(parts.stamp).subspan(at.inside > at.length ? at.inside - at.length : 0));
}

IoResult Outflow::send_parts(Item& item, const Parts& parts) {
  if (parts.lend) return lender_.write(parts.only(), parts.flags == MSG_MORE);
  const IoResult r = write_some(to_peer_, {parts.at, parts.count}, parts.flags);
  if ((parts.flags & MSG_ZEROCOPY) == 0) return r;
  if (r.problem == ENOBUFS) return write_some(to_peer_, {parts.at, parts.count});  // no more memory may be pinned now: copy
  if (r.state == Io::moved) zerocopy_.sent(item.sending);
  return r;
}

bool Outflow::write(Item& item, Push& result) {
  for (std::uint64_t limit = item.sent + kBlockBytes; item.sent < item.total;) {
    if (item.sent >= limit) return false;  // reading gets its turn
    if (item.lent && item.before_last_stamp() && (!say_got(result) || !item.got)) return false;
    if (item.sending && !item.sending->pin()) return false;  // given up: its link is about to fail, and stop() to clean up
    Parts parts;
    if (item.raw.empty())
      gather(item, parts);
    else
      parts.add(ConstBytes(item.raw).subspan(item.sent));
    const IoResult r = send_parts(item, parts);
    if (item.sending) item.sending->unpin();
    result.broken = r.state == Io::closed;
    result.problem = r.problem;
    if (r.state != Io::moved) return false;
    result.moved = true;
    if (item.sent == 0) ++sequence_;
    item.sent += r.bytes;
  }
  const IoResult left = flush(to_peer_);
  if (left.state == Io::closed) result = {.moved = result.moved, .broken = true, .problem = left.problem};
  return left.state == Io::moved;
}

// At the two places where the peer expects it: between frames as a frame, before the last stamp of a lent message as a stamp.
bool Outflow::say_got(Push& result) {
  if (going_.empty() && owed_ && !stopped_) {
    owed_ = false;
    const bool between = queue_.empty() || queue_.front().sent == 0;
    if (between)
      append(going_, encode_header({.type = kGotFrame, .flags = 0, .length = 0, .tag = {}, .sequence = sequence_++}));
    else
      append(going_, got_stamp());
  }
  if (going_.empty()) return true;
  const iovec part{going_.data(), going_.size()};
  const IoResult r = write_some(to_peer_, {&part, 1});
  result.broken = r.state == Io::closed;
  result.problem = r.problem;
  result.moved = result.moved || r.bytes > 0;
  going_.erase(going_.begin(), going_.begin() + static_cast<std::ptrdiff_t>(r.bytes));
  return going_.empty();
}

void Outflow::write_queue(Push& result) {
  if (broken_) result = {.moved = result.moved, .broken = true, .problem = *broken_};
  for (int turns = 0; turns < kTurns && !result.broken; ++turns) {
    const bool between = queue_.empty() || queue_.front().sent == 0;
    if ((between || !going_.empty()) && !say_got(result)) break;
    if (queue_.empty() || !write(queue_.front(), result)) break;
    const auto& sending = queue_.front().sending;
    if (sending && zerocopy_.whole(sending)) sending->set_done();
    queue_.pop_front();
    if (stopped_)
      ::shutdown(to_peer_.fd, SHUT_WR);  // that was the last frame: a peer that does not read now sees at least that we are done
  }
  if (result.broken) {
    broken_ = result.problem;
    forget();
  }
  note_state();
}

void Outflow::forget() {
  queue_.clear();
  going_.clear();
  owed_ = false;
  lender_.reset();
}

std::shared_ptr<Sending> Outflow::begin(ConstBytes bytes, Tag tag, Push& result) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return std::make_shared<Sending>(to_, tag, bytes);  // the link has failed meanwhile: the waiter is told there
  Item item;
  item.body = bytes;
  item.tag = tag;
  item.total = encoded_bytes(bytes.size());
  item.lent = lender_.pays_for(bytes.size());
  const bool first = queue_.empty() && going_.empty() && !owed_;
  const bool keep = item.lent || zerocopy_.pays_for(bytes.size());  // in use after this call, whatever the socket takes
  if (first && !keep && write(item, result)) return nullptr;
  auto sending = std::make_shared<Sending>(to_, tag, bytes);
  item.sending = sending;
  queue_.push_back(std::move(item));
  if (first && keep) write_queue(result);
  note_state();
  return sending;
}

Outflow::Push Outflow::push() {
  Push result;
  const std::lock_guard lock(mutex_);
  if (zerocopy_.flying()) result.moved = zerocopy_.reap(to_peer_.fd);
  write_queue(result);
  return result;
}

void Outflow::owe_got() {
  const std::lock_guard lock(mutex_);
  owed_ = !stopped_ && !broken_;
  note_state();
}

bool Outflow::lent_was_got() {
  const std::lock_guard lock(mutex_);
  if (stopped_ || broken_) return true;  // said before the end
  if (queue_.empty() || !queue_.front().lent || !queue_.front().before_last_stamp() || std::exchange(queue_.front().got, true))
    return false;
  note_state();
  return true;
}

// waiting(): push() could do something if the socket had room. A lent message that only waits for the peer's word could not.
void Outflow::note_state() {
  const bool idle = queue_.empty() || (queue_.front().lent && queue_.front().before_last_stamp() && !queue_.front().got);
  const bool news = broken_ && !stopped_;  // which begin() and others may have met where nobody listened
  waiting_.store(!idle || !going_.empty() || owed_ || news, std::memory_order_release);
  flying_.store(zerocopy_.flying(), std::memory_order_release);
  lending_.store(!queue_.empty() && queue_.front().lent, std::memory_order_release);
}

void Outflow::drop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  forget();
  note_state();
}

void Outflow::stop(std::uint16_t last_type, ConstBytes last_body) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(stopped_, true)) return;
  if (broken_) return note_state();
  Item last;
  last.raw = std::exchange(going_, {});
  if (!queue_.empty() && queue_.front().sent > 0) {
    const Item& cut = queue_.front();
    append(last.raw, void_rest(cut.header, cut.body.size(), cut.sent, cut.check));
  }
  append(last.raw, encode_header({.type = last_type, .flags = 0, .length = last_body.size(), .tag = {}, .sequence = sequence_}));
  append(last.raw, last_body);
  if (!last_body.empty()) append(last.raw, good_stamp(0));
  last.total = last.raw.size();
  forget();
  queue_.push_back(std::move(last));
  note_state();
}

}  // namespace cohort::net
