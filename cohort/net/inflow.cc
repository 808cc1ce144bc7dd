#include "cohort/net/inflow.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cohort/net/socket.h"

namespace cohort::net {
namespace {

constexpr std::size_t kDirect = 8_KiB;        // a block with at least this much left is read straight into its place
constexpr std::size_t kBudget = kBlockBytes;  // per pull, so that other peers and our own sends get their turn

}  // namespace

Inflow::Pull Inflow::pull(Connection from, Haste haste) {
  Pull out;
  haste_ = haste;
  try {
    std::uint64_t taken = 0;
    bool more = true;
    while (digest_staged(out) && more && taken < kBudget) {
      const std::uint64_t left = body_left_;
      more = read(from, out);
      taken += (staged_end_ - staged_begin_) + (left > body_left_ ? left - body_left_ : 0);
    }
  } catch (const Failure& f) {
    out.end = End::corrupt;
    out.text = f.what();
  }
  return out;
}

// A peer that stops in the middle of a block fills it up first. One that lends its memory stamps the last block when it has heard of us.
std::size_t Inflow::sure() const {
  if (blocked_ || stage_ == Stage::header) return 1;
  if (stage_ == Stage::body && (header_.flags & kLentFlag) != 0) return block_left_;
  return stage_ == Stage::body ? block_left_ + kStampBytes : kStampBytes - stamp_have_;
}

Inflow::Pull Inflow::feed(ConstBytes bytes) {
  Pull out;
  try {
    out.moved = digest(bytes, out) > 0;
  } catch (const Failure& f) {
    out.end = End::corrupt;
    out.text = f.what();
  }
  return out;
}

bool Inflow::read(Connection from, Pull& out) {
  const bool direct = stage_ == Stage::body && landing_ && block_left_ >= kDirect;
  const Bytes room = direct ? landing_->room(block_left_) : Bytes();
  const iovec parts[] = {{room.data(), room.size()}, {staging_.data(), staging_.size()}};
  const IoResult r = read_parts(from, std::span(parts).last(direct ? 2 : 1));
  const std::size_t got = r.bytes;
  const std::size_t placed = std::min(got, room.size());
  if (direct) {
    if ((header_.flags & kCheckedFlag) != 0) check_ = crc32c(room.first(placed), check_);
    landing_->filled(placed);
    body_came(placed, out);
  }
  staged_begin_ = 0;
  staged_end_ = got - placed;
  out.moved = out.moved || got > 0;
  if (r.state == Io::closed) {
    if (r.problem == EBADMSG) throw_failure(Kind::corrupt, "a TLS record that is none of its own: altered on the way");
    out.end = End::closed;
    out.text = problem_text(r.problem);
  }
  return got == room.size() + staging_.size();
}

bool Inflow::digest_staged(Pull& out) {
  if (out.end != End::none) return false;
  staged_begin_ += digest(ConstBytes(staging_).subspan(staged_begin_, staged_end_ - staged_begin_), out);
  return staged_begin_ == staged_end_ && !blocked_ && out.end == End::none;
}

std::size_t Inflow::digest(ConstBytes bytes, Pull& out) {
  std::size_t used = 0;
  if (blocked_) start_message(out);
  while (used < bytes.size() && !blocked_ && out.end == End::none) {
    const ConstBytes rest = bytes.subspan(used);
    switch (stage_) {
      case Stage::header: used += digest_header(rest, out); break;
      case Stage::body: used += digest_body(rest, out); break;
      case Stage::stamp: used += digest_stamp(rest, out); break;
    }
  }
  return used;
}

std::size_t Inflow::digest_header(ConstBytes bytes, Pull& out) {
  const Bytes space = headers_.space();
  const std::size_t n = std::min(space.size(), bytes.size());
  std::memcpy(space.data(), bytes.data(), n);
  if (const auto header = headers_.advance(n)) start_frame(*header, out);
  return n;
}

void Inflow::start_frame(const FrameHeader& header, Pull& out) {
  header_ = header;
  if (header.type == kDataFrame) return start_message(out);
  if (header.type == kGoodbyeFrame) {
    out.end = End::goodbye;
    return;
  }
  if (header.type == kGotFrame) return peer_got(out);
  text_.clear();
  start_body(out);
}

void Inflow::start_message(Pull& out) {
  landing_ = mailbox_.arrive(from_, header_.tag, header_.length, haste_, strand_);
  blocked_ = out.paused = !landing_;
  if (landing_) start_body(out);
}

void Inflow::start_body(Pull& out) {
  body_left_ = header_.length;
  if (body_left_ == 0) return end_frame(out);
  start_block();
}

void Inflow::start_block() {
  block_left_ = static_cast<std::size_t>(std::min<std::uint64_t>(kBlockBytes, body_left_));
  check_ = 0;
  stage_ = Stage::body;
}

std::size_t Inflow::digest_body(ConstBytes bytes, Pull& out) {
  const ConstBytes part = bytes.first(std::min(block_left_, bytes.size()));
  if ((header_.flags & kCheckedFlag) != 0) check_ = crc32c(part, check_);
  if (landing_)
    landing_->copy(part);
  else
    text_.insert(text_.end(), part.begin(), part.end());  // at most its type's cap, checked with the header
  body_came(part.size(), out);
  return part.size();
}

void Inflow::body_came(std::size_t bytes, Pull& out) {
  body_left_ -= bytes;
  block_left_ -= bytes;
  if (block_left_ > 0) return;
  stage_ = Stage::stamp;
  stamp_have_ = 0;
  if (body_left_ == 0 && (header_.flags & kLentFlag) != 0) out.owed = true;
}

std::size_t Inflow::digest_stamp(ConstBytes bytes, Pull& out) {
  const std::size_t n = std::min(kStampBytes - stamp_have_, bytes.size());
  std::memcpy(&stamp_[stamp_have_], bytes.data(), n);
  stamp_have_ += n;
  if (stamp_have_ < kStampBytes) return n;
  const Stamp stamp = decode_stamp(stamp_, check_);
  if (stamp == Stamp::got) {
    peer_got(out);
    stamp_have_ = 0;
    return n;
  }
  if (stamp == Stamp::void_block) {  // the sender stopped here; its next frame says why
    landing_.reset();
    stage_ = Stage::header;
    return n;
  }
  body_left_ > 0 ? start_block() : end_frame(out);
  return n;
}

// Twice in a row cannot be: the next message is lent only when the last stamp of this one has left.
void Inflow::peer_got(Pull& out) {
  if (std::exchange(out.got, true)) throw_failure(Kind::corrupt, "it confirms the same message twice");
}

void Inflow::end_frame(Pull& out) {
  stage_ = Stage::header;
  if (header_.type == kAbortFrame) {
    out.end = End::aborted;
    out.text.assign(reinterpret_cast<const char*>(text_.data()), text_.size());
    return;
  }
  mailbox_.landed(std::move(*landing_));
  landing_.reset();
}

}  // namespace cohort::net
