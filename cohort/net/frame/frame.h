// Frames: the format of messages in a byte stream. A fixed 40-byte little-endian header, then
//   control:  the body and its MAC;
//   data:     the body in blocks of 512 KiB, each followed by a trailer of 8 bytes: its checksum, and whether the block is valid. A sender
//             that must stop in the middle pads the block, marks it void in its trailer, and can then send an abort frame with the reason.
// The readers here are pure: space() says where the next bytes belong, advance() takes the number that came; no socket is involved, so the
// same code serves the transport and the fuzzer. They never ask for a byte beyond the frame, and allocate nothing before the length
// has been checked against the limit of its type. Threads: one at a time. Failure: Kind::corrupt, after which the stream is useless.
// To add a frame type: one row in kFrameRows (frame.cc) and a line in docs/wire.md.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/ids.h"
#include "cohort/net/crypto/crypto.h"

namespace cohort::net {

inline constexpr std::size_t kHeaderBytes = 40;
inline constexpr std::uint32_t kFrameMagic = 0x54524843;  // "CHRT"
inline constexpr std::uint8_t kFrameVersion = 1;
inline constexpr std::size_t kControlCap = 1_MiB;
inline constexpr std::uint64_t kDataCap = std::uint64_t{1} << 40;  // 1 TiB: beyond any buffer, small enough that sums never wrap

// A stream carries one class of frames at a time: control until both sides have agreed, data afterwards.
enum class FrameClass : std::uint8_t { control, data };
enum : std::uint16_t { kDataFrame = 0x8001, kGoodbyeFrame = 0x8002, kAbortFrame = 0x8003 };  // below 0x8000: control frames
enum : std::uint8_t { kMacFlag = 1, kChecksumFlag = 2 };                                     // a MAC follows | trailers carry checksums

struct FrameHeader {
  std::uint16_t type = 0;
  std::uint8_t flags = 0;
  std::uint64_t length = 0;
  Tag tag;
  std::uint64_t sequence = 0;
};
using HeaderBytes = std::array<std::byte, kHeaderBytes>;

HeaderBytes encode_header(const FrameHeader& header);
// Checks everything that can be known from the header alone.
FrameHeader decode_header(std::span<const std::byte, kHeaderBytes> bytes, FrameClass stream, std::uint64_t sequence);
// The largest body of this type on this stream; nullopt when the type does not exist there.
std::optional<std::uint64_t> frame_cap(std::uint16_t type, FrameClass stream);

// Reads headers; bodies are left to the caller (the transport reads them straight into the receiver's buffer).
class HeaderReader {
 public:
  explicit HeaderReader(FrameClass stream) : stream_(stream) {}
  Bytes space() { return Bytes(bytes_).subspan(have_); }
  std::optional<FrameHeader> advance(std::size_t arrived);  // the header once it is complete
  bool between_frames() const { return have_ == 0; }
  const HeaderBytes& last() const { return bytes_; }

 private:
  FrameClass stream_;
  HeaderBytes bytes_{};
  std::size_t have_ = 0;
  std::uint64_t sequence_ = 0;
};

struct Frame {
  std::uint16_t type = 0;
  std::vector<std::byte> body;
};

// Reads whole control frames and checks their MAC and sequence number.
class ControlFrameReader {
 public:
  explicit ControlFrameReader(const Key& key) : key_(key), header_reader_(FrameClass::control) {}
  Bytes space();
  std::optional<Frame> advance(std::size_t arrived);
  bool between_frames() const { return !header_ && header_reader_.between_frames(); }

 private:
  Key key_;
  HeaderReader header_reader_;
  std::optional<FrameHeader> header_;  // complete; its body and MAC are being read
  std::vector<std::byte> rest_;        // body, then MAC
  std::size_t have_ = 0;
};

// The bytes around a control frame's body: header first, MAC last. Throws Kind::usage for a wrong type or a body over the cap.
struct ControlEnvelope {
  HeaderBytes header;
  Digest mac;
};
ControlEnvelope seal_control(const Key& key, std::uint16_t type, std::uint64_t sequence, ConstBytes body);

// Data frames: bytes of the whole frame, header and trailers included.
// A block is also how much is written before reading gets its turn: with 512 KiB an exchange of 16 to 64 MiB over loopback was 15 to 30 %
// faster than with 1 MiB or without a limit when the two cores share no cache, and as fast when they do; 256 KiB and less lost again.
inline constexpr std::size_t kBlockBytes = 512_KiB;
inline constexpr std::size_t kTrailerBytes = 8;
constexpr std::uint64_t encoded_bytes(std::uint64_t length) {
  return kHeaderBytes + length + (length + kBlockBytes - 1) / kBlockBytes * kTrailerBytes;
}
using TrailerBytes = std::array<std::byte, kTrailerBytes>;
TrailerBytes good_trailer(std::uint32_t check);
TrailerBytes void_trailer();
enum class BlockTrailer : std::uint8_t { good, void_block };
BlockTrailer decode_trailer(std::span<const std::byte, kTrailerBytes> bytes,
                            std::uint32_t check);  // Kind::corrupt when it is malformed, or check differs

// Castagnoli's checksum, with the processor's instruction where there is one. `before` continues an earlier sum.
std::uint32_t crc32c(ConstBytes bytes, std::uint32_t before = 0);

}  // namespace cohort::net
