#include "cohort/net/frame/frame.h"

#include <cstring>

#include "cohort/base/error.h"
#include "cohort/net/frame/little_endian.h"

namespace cohort::net {
namespace {

struct FrameRow {
  std::uint16_t first;
  std::uint16_t last;
  FrameClass stream;
  std::uint64_t cap;
};
constexpr std::uint32_t kGood = 0x444f4f47, kVoid = 0x44494f56;  // "GOOD", "VOID"

constexpr FrameRow kFrameRows[] = {
    {0x0001, 0x7fff, FrameClass::control, kControlCap},
    {kDataFrame, kDataFrame, FrameClass::data, kDataCap},
    {kGoodbyeFrame, kGoodbyeFrame, FrameClass::data, 0},
    {kAbortFrame, kAbortFrame, FrameClass::data, 4_KiB},
};

std::uint8_t known_flags(FrameClass stream) { return stream == FrameClass::control ? kMacFlag : kChecksumFlag; }

}  // namespace

std::optional<std::uint64_t> frame_cap(std::uint16_t type, FrameClass stream) {
  for (const FrameRow& row : kFrameRows)
    if (row.stream == stream && row.first <= type && type <= row.last) return row.cap;
  return std::nullopt;
}

HeaderBytes encode_header(const FrameHeader& header) {
  HeaderBytes out{};
  store_le<std::uint32_t>(&out[0], kFrameMagic);
  store_le<std::uint8_t>(&out[4], kFrameVersion);
  store_le<std::uint8_t>(&out[5], header.flags);
  store_le<std::uint16_t>(&out[6], header.type);
  store_le<std::uint64_t>(&out[8], header.length);
  store_le<std::uint32_t>(&out[16], header.tag.channel);
  store_le<std::uint32_t>(&out[20], header.tag.number);
  store_le<std::uint64_t>(&out[24], header.sequence);
  store_le<std::uint32_t>(&out[32], 0);
  store_le<std::uint32_t>(&out[36], crc32c(ConstBytes(out).first(36)));
  return out;
}

FrameHeader decode_header(std::span<const std::byte, kHeaderBytes> in, FrameClass stream, std::uint64_t sequence) {
  if (load_le<std::uint32_t>(&in[0]) != kFrameMagic)
    throw_failure(Kind::corrupt, "frame {} starts with {:08x} instead of {:08x}", sequence, load_le<std::uint32_t>(&in[0]), kFrameMagic);
  if (load_le<std::uint8_t>(&in[4]) != kFrameVersion)
    throw_failure(Kind::corrupt, "frame {} has format version {}, this process reads {}", sequence, load_le<std::uint8_t>(&in[4]),
                  kFrameVersion);
  if (load_le<std::uint32_t>(&in[36]) != crc32c(ConstBytes(in).first(36)))
    throw_failure(Kind::corrupt, "frame {}: its header does not match its checksum", sequence);
  FrameHeader header;
  header.flags = load_le<std::uint8_t>(&in[5]);
  header.type = load_le<std::uint16_t>(&in[6]);
  header.length = load_le<std::uint64_t>(&in[8]);
  header.tag = {load_le<std::uint32_t>(&in[16]), load_le<std::uint32_t>(&in[20])};
  header.sequence = load_le<std::uint64_t>(&in[24]);
  const auto cap = frame_cap(header.type, stream);
  if (!cap) throw_failure(Kind::corrupt, "frame {} has unknown type {:#06x}", sequence, header.type);
  if (header.length > *cap)
    throw_failure(Kind::corrupt, "frame {} of type {:#06x} announces {} bytes, at most {} are allowed", sequence, header.type,
                  header.length, *cap);
  if ((header.flags & ~known_flags(stream)) != 0)
    throw_failure(Kind::corrupt, "frame {} has unknown flags {:#04x}", sequence, header.flags);
  if (stream == FrameClass::control && header.flags != kMacFlag) throw_failure(Kind::corrupt, "frame {} carries no MAC", sequence);
  if (load_le<std::uint32_t>(&in[32]) != 0) throw_failure(Kind::corrupt, "frame {} fills a field that must be zero", sequence);
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

Bytes ControlFrameReader::space() { return header_ ? Bytes(rest_).subspan(have_) : header_reader_.space(); }

std::optional<Frame> ControlFrameReader::advance(std::size_t arrived) {
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
    throw_failure(Kind::corrupt, "frame {}: its MAC does not match, the bytes were changed in transit", header_->sequence);
  Frame frame{header_->type, std::move(rest_)};
  frame.body.resize(header_->length);
  rest_ = {};
  header_.reset();
  return frame;
}

ControlEnvelope seal_control(const Key& key, std::uint16_t type, std::uint64_t sequence, ConstBytes body) {
  if (!frame_cap(type, FrameClass::control)) throw_failure(Kind::usage, "{:#06x} is no control frame type: 1 to 0x7fff are", type);
  if (body.size() > kControlCap) throw_failure(Kind::usage, "a control frame carries at most {} bytes, not {}", kControlCap, body.size());
  ControlEnvelope out;
  out.header = encode_header({.type = type, .flags = kMacFlag, .length = body.size(), .tag = {}, .sequence = sequence});
  out.mac = hmac(key.bytes(), {out.header, body});
  return out;
}

TrailerBytes good_trailer(std::uint32_t check) {
  TrailerBytes out;
  store_le<std::uint32_t>(&out[0], check);
  store_le<std::uint32_t>(&out[4], kGood);
  return out;
}

TrailerBytes void_trailer() {
  TrailerBytes out{};
  store_le<std::uint32_t>(&out[4], kVoid);
  return out;
}

BlockTrailer decode_trailer(std::span<const std::byte, kTrailerBytes> bytes, std::uint32_t check) {
  const auto mark = load_le<std::uint32_t>(&bytes[4]);
  if (mark == kVoid) return BlockTrailer::void_block;
  if (mark != kGood) throw_failure(Kind::corrupt, "a block's trailer is {:08x}, neither good nor void", mark);
  if (load_le<std::uint32_t>(&bytes[0]) != check)
    throw_failure(Kind::corrupt, "a block of a message does not match its checksum: bytes were changed in transit");
  return BlockTrailer::good;
}

}  // namespace cohort::net
