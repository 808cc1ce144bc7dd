#include "cohort/net/tcp/receive_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cohort/net/socket/socket.h"

namespace cohort::net {
namespace {

constexpr std::size_t kDirect = 8_KiB;        // a block with at least this much left is read straight into its place
constexpr std::size_t kBudget = kBlockBytes;  // per pull, so that other peers and our own sends get their turn

}  // namespace

ReceiveStream::Pull ReceiveStream::pull(SocketView from, ReadUrgency urgency) {
  Pull out;
  urgency_ = urgency;
  try {
    std::uint64_t taken = 0;
    bool more = true;
    while (parse_staged(out) && more && taken < kBudget) {
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

// A peer that stops in the middle of a block pads it first.
std::size_t ReceiveStream::sure() const {
  if (blocked_ || stage_ == Stage::header) return 1;
  return stage_ == Stage::body ? block_left_ + kTrailerBytes : kTrailerBytes - trailer_have_;
}

ReceiveStream::Pull ReceiveStream::feed(ConstBytes bytes) {
  Pull out;
  try {
    out.moved = parse(bytes, out) > 0;
  } catch (const Failure& f) {
    out.end = End::corrupt;
    out.text = f.what();
  }
  return out;
}

bool ReceiveStream::read(SocketView from, Pull& out) {
  const bool direct = stage_ == Stage::body && slot_ && block_left_ >= kDirect;
  const Bytes direct_space = direct ? slot_->space(block_left_) : Bytes();
  const iovec parts[] = {{direct_space.data(), direct_space.size()}, {staging_.data(), staging_.size()}};
  const IoResult r = read_parts(from, std::span(parts).last(direct ? 2 : 1));
  const std::size_t got = r.bytes;
  const std::size_t placed = std::min(got, direct_space.size());
  if (direct) {
    if ((header_.flags & kChecksumFlag) != 0) check_ = crc32c(direct_space.first(placed), check_);
    slot_->filled(placed);
    body_came(placed);
  }
  staged_begin_ = 0;
  staged_end_ = got - placed;
  out.moved = out.moved || got > 0;
  if (r.state == IoState::closed) {
    if (r.problem == EBADMSG) throw_failure(Kind::corrupt, "a TLS record that it did not send: altered in transit");
    out.end = End::closed;
    out.text = problem_text(r.problem);
  }
  return got == direct_space.size() + staging_.size();
}

bool ReceiveStream::parse_staged(Pull& out) {
  if (out.end != End::none) return false;
  staged_begin_ += parse(ConstBytes(staging_).subspan(staged_begin_, staged_end_ - staged_begin_), out);
  return staged_begin_ == staged_end_ && !blocked_ && out.end == End::none;
}

std::size_t ReceiveStream::parse(ConstBytes bytes, Pull& out) {
  std::size_t used = 0;
  if (blocked_) start_message(out);
  while (used < bytes.size() && !blocked_ && out.end == End::none) {
    const ConstBytes rest = bytes.subspan(used);
    switch (stage_) {
      case Stage::header: used += parse_header(rest, out); break;
      case Stage::body: used += parse_body(rest); break;
      case Stage::trailer: used += parse_trailer(rest, out); break;
    }
  }
  return used;
}

std::size_t ReceiveStream::parse_header(ConstBytes bytes, Pull& out) {
  const Bytes space = headers_.space();
  const std::size_t n = std::min(space.size(), bytes.size());
  std::memcpy(space.data(), bytes.data(), n);
  if (const auto header = headers_.advance(n)) start_frame(*header, out);
  return n;
}

void ReceiveStream::start_frame(const FrameHeader& header, Pull& out) {
  header_ = header;
  if (header.type == kDataFrame) return start_message(out);
  if (header.type == kGoodbyeFrame) {
    out.end = End::goodbye;
    return;
  }
  text_.clear();
  start_body(out);
}

void ReceiveStream::start_message(Pull& out) {
  slot_ = mailbox_.arrive(from_, header_.tag, header_.length, urgency_, stream_id_);
  blocked_ = out.paused = !slot_;
  if (slot_) start_body(out);
}

void ReceiveStream::start_body(Pull& out) {
  body_left_ = header_.length;
  if (body_left_ == 0) return end_frame(out);
  start_block();
}

void ReceiveStream::start_block() {
  block_left_ = static_cast<std::size_t>(std::min<std::uint64_t>(kBlockBytes, body_left_));
  check_ = 0;
  stage_ = Stage::body;
}

std::size_t ReceiveStream::parse_body(ConstBytes bytes) {
  const ConstBytes part = bytes.first(std::min(block_left_, bytes.size()));
  if ((header_.flags & kChecksumFlag) != 0) check_ = crc32c(part, check_);
  if (slot_)
    slot_->copy(part);
  else
    text_.insert(text_.end(), part.begin(), part.end());  // at most its type's cap, checked with the header
  body_came(part.size());
  return part.size();
}

void ReceiveStream::body_came(std::size_t bytes) {
  body_left_ -= bytes;
  block_left_ -= bytes;
  if (block_left_ > 0) return;
  stage_ = Stage::trailer;
  trailer_have_ = 0;
}

std::size_t ReceiveStream::parse_trailer(ConstBytes bytes, Pull& out) {
  const std::size_t n = std::min(kTrailerBytes - trailer_have_, bytes.size());
  std::memcpy(&trailer_[trailer_have_], bytes.data(), n);
  trailer_have_ += n;
  if (trailer_have_ < kTrailerBytes) return n;
  if (decode_trailer(trailer_, check_) == BlockTrailer::void_block) {  // the sender stopped here; its next frame has the reason
    slot_.reset();
    stage_ = Stage::header;
    return n;
  }
  body_left_ > 0 ? start_block() : end_frame(out);
  return n;
}

void ReceiveStream::end_frame(Pull& out) {
  stage_ = Stage::header;
  if (header_.type == kAbortFrame) {
    out.end = End::aborted;
    out.text.assign(reinterpret_cast<const char*>(text_.data()), text_.size());
    return;
  }
  mailbox_.finish(std::move(*slot_));
  slot_.reset();
}

}  // namespace cohort::net
