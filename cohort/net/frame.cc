#include "cohort/net/frame.h"

#include <cstring>

#include "cohort/base/error.h"
#include "cohort/net/little.h"

namespace cohort::net {
namespace {

struct FrameRow {
  std::uint16_t first;
  std::uint16_t last;
  Stream stream;
  std::uint64_t cap;
};
constexpr std::uint32_t kGood = 0x444f4f47, kVoid = 0x44494f56, kGot = 0x21544f47;  // "GOOD", "VOID", "GOT!"

constexpr FrameRow kFrameRows[] = {
    {0x0001, 0x7fff, Stream::control, kControlCap},  {kDataFrame, kDataFrame, Stream::data, kDataCap},
    {kGoodbyeFrame, kGoodbyeFrame, Stream::data, 0}, {kAbortFrame, kAbortFrame, Stream::data, 4_KiB},
    {kGotFrame, kGotFrame, Stream::data, 0},
};

std::uint8_t known_flags(Stream stream, std::uint16_t type) {
  if (stream == Stream::control) return kSealedFlag;
  return type == kDataFrame ? kCheckedFlag | kLentFlag : kCheckedFlag;
}

}  // namespace

std::optional<std::uint64_t> frame_cap(std::uint16_t type, Stream stream) {
  for (const FrameRow& row : kFrameRows)
    if (row.stream == stream && row.first <= type && type <= row.last) return row.cap;
  return std::nullopt;
}

HeaderBytes encode_header(const FrameHeader& header) {
  HeaderBytes out{};
  put_little<std::uint32_t>(&out[0], kFrameMagic);
  put_little<std::uint8_t>(&out[4], kFrameVersion);
  put_little<std::uint8_t>(&out[5], header.flags);
  put_little<std::uint16_t>(&out[6], header.type);
  put_little<std::uint64_t>(&out[8], header.length);
  put_little<std::uint32_t>(&out[16], header.tag.channel);
  put_little<std::uint32_t>(&out[20], header.tag.number);
  put_little<std::uint64_t>(&out[24], header.sequence);
  put_little<std::uint32_t>(&out[32], 0);
  put_little<std::uint32_t>(&out[36], crc32c(ConstBytes(out).first(36)));
  return out;
}

FrameHeader decode_header(std::span<const std::byte, kHeaderBytes> in, Stream stream, std::uint64_t sequence) {
  if (get_little<std::uint32_t>(&in[0]) != kFrameMagic)
    throw_failure(Kind::corrupt, "frame {} starts with {:08x} instead of {:08x}", sequence, get_little<std::uint32_t>(&in[0]), kFrameMagic);
  if (get_little<std::uint8_t>(&in[4]) != kFrameVersion)
    throw_failure(Kind::corrupt, "frame {} has format {}, we read {}", sequence, get_little<std::uint8_t>(&in[4]), kFrameVersion);
  if (get_little<std::uint32_t>(&in[36]) != crc32c(ConstBytes(in).first(36)))
    throw_failure(Kind::corrupt, "frame {}: its header does not match its checksum", sequence);
  FrameHeader header;
  header.flags = get_little<std::uint8_t>(&in[5]);
  header.type = get_little<std::uint16_t>(&in[6]);
  header.length = get_little<std::uint64_t>(&in[8]);
  header.tag = {get_little<std::uint32_t>(&in[16]), get_little<std::uint32_t>(&in[20])};
  header.sequence = get_little<std::uint64_t>(&in[24]);
  const auto cap = frame_cap(header.type, stream);
  if (!cap) throw_failure(Kind::corrupt, "frame {} has unknown type {:#06x}", sequence, header.type);
  if (header.length > *cap)
    throw_failure(Kind::corrupt, "frame {} of type {:#06x} announces {} bytes, at most {} are allowed", sequence, header.type,
                  header.length, *cap);
  if ((header.flags & ~known_flags(stream, header.type)) != 0)
    throw_failure(Kind::corrupt, "frame {} has unknown flags {:#04x}", sequence, header.flags);
  if (stream == Stream::control && header.flags != kSealedFlag) throw_failure(Kind::corrupt, "frame {} carries no MAC", sequence);
  if (get_little<std::uint32_t>(&in[32]) != 0) throw_failure(Kind::corrupt, "frame {} fills a field that must be zero", sequence);
  if (header.sequence != sequence)
    throw_failure(Kind::corrupt, "frame {} says it is number {}: lost or replayed", sequence, header.sequence);
  return header;
}

std::optional<FrameHeader> HeaderReader::advance(std::size_t arrived) {
  have_ += arrived;
  if (have_ < kHeaderBytes) return std::nullopt;
  have_ = 0;
  return decode_header(bytes_, stream_, sequence_++);
}

Bytes SealedReader::space() { return header_ ? Bytes(rest_).subspan(have_) : header_reader_.space(); }

std::optional<Frame> SealedReader::advance(std::size_t arrived) {
  if (!header_) {
    header_ = header_reader_.advance(arrived);
    if (!header_) return std::nullopt;
    rest_.resize(header_->length + kDigestBytes);  // the length was checked against its cap
    have_ = 0;
    return std::nullopt;
  }
  have_ += arrived;
  if (have_ < rest_.size()) return std::nullopt;
  const ConstBytes body = ConstBytes(rest_).first(header_->length);
  const ConstBytes mac = ConstBytes(rest_).last(kDigestBytes);
  if (!same_digest(mac, hmac(key_.bytes(), {header_reader_.last(), body})))
    throw_failure(Kind::corrupt, "frame {}: its MAC does not match, the bytes were changed on the way", header_->sequence);
  Frame frame{header_->type, std::move(rest_)};
  frame.body.resize(header_->length);
  rest_ = {};
  header_.reset();
  return frame;
}

Seal seal(const Key& key, std::uint16_t type, std::uint64_t sequence, ConstBytes body) {
  if (!frame_cap(type, Stream::control)) throw_failure(Kind::usage, "{:#06x} is no control frame type: 1 to 0x7fff are", type);
  if (body.size() > kControlCap) throw_failure(Kind::usage, "a control frame carries at most {} bytes, not {}", kControlCap, body.size());
  Seal out;
  out.header = encode_header({.type = type, .flags = kSealedFlag, .length = body.size(), .tag = {}, .sequence = sequence});
  out.mac = hmac(key.bytes(), {out.header, body});
  return out;
}

StampBytes good_stamp(std::uint32_t check) {
  StampBytes out;
  put_little<std::uint32_t>(&out[0], check);
  put_little<std::uint32_t>(&out[4], kGood);
  return out;
}

StampBytes void_stamp() {
  StampBytes out{};
  put_little<std::uint32_t>(&out[4], kVoid);
  return out;
}

StampBytes got_stamp() {
  StampBytes out{};
  put_little<std::uint32_t>(&out[4], kGot);
  return out;
}

Stamp decode_stamp(std::span<const std::byte, kStampBytes> bytes, std::uint32_t check) {
  const auto verdict = get_little<std::uint32_t>(&bytes[4]);
  if (verdict == kVoid) return Stamp::void_block;
  if (verdict == kGot) return Stamp::got;
  if (verdict != kGood) throw_failure(Kind::corrupt, "a block ends with {:08x}, neither good nor void nor got", verdict);
  if (get_little<std::uint32_t>(&bytes[0]) != check)
    throw_failure(Kind::corrupt, "a block of a message does not match its checksum: bytes were changed on the way");
  return Stamp::good;
}

}  // namespace cohort::net
