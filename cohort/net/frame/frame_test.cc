#include "cohort/net/frame/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "cohort/base/error.h"
#include "cohort/net/frame/little_endian.h"

namespace cohort::net {
namespace {

using testing::HasSubstr;

Key key_of(unsigned char fill) {
  Key key;
  std::ranges::fill(key.bytes(), std::byte{fill});
  return key;
}

std::vector<std::byte> sealed(const Key& key, std::uint16_t type, std::uint64_t sequence, std::string_view body) {
  const ControlEnvelope around = seal_control(key, type, sequence, as_bytes(body));
  std::vector<std::byte> out(kHeaderBytes + body.size() + kDigestBytes);
  auto end = std::ranges::copy(around.header, out.begin()).out;
  end = std::ranges::copy(as_bytes(body), end).out;
  std::ranges::copy(around.mac, end);
  return out;
}

// Feeds bytes in pieces of at most `piece`; returns the frames that came out.
std::vector<Frame> feed(ControlFrameReader& reader, ConstBytes bytes, std::size_t piece) {
  std::vector<Frame> frames;
  while (!bytes.empty()) {
    const Bytes space = reader.space();
    const std::size_t n = std::min({piece, bytes.size(), space.size()});
    std::memcpy(space.data(), bytes.data(), n);
    if (auto frame = reader.advance(n)) frames.push_back(std::move(*frame));
    bytes = bytes.subspan(n);
  }
  return frames;
}

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Failure& f) {
    return std::string(kind_name(f.kind())) + ": " + f.what();
  }
  return "accepted";
}

HeaderBytes header_with(const std::function<void(FrameHeader&)>& change) {
  FrameHeader header{.type = kDataFrame, .flags = 0, .length = 5, .tag = {1, 2}, .sequence = 0};
  change(header);
  return encode_header(header);
}

TEST(FrameHeader, IsEncodedAsDocumented) {
  const HeaderBytes bytes =
      encode_header({.type = kDataFrame, .flags = kChecksumFlag, .length = 0x0102030405, .tag = {0x11121314, 0x21222324}, .sequence = 7});
  const unsigned char expected[] = {'C',  'H',  'R',  'T',  1,    2,    0x01, 0x80, 0x05, 0x04, 0x03, 0x02, 0x01, 0, 0, 0, 0x14, 0x13,
                                    0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 7,    0,    0,    0,    0,    0,    0,    0, 0, 0, 0,    0};
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof expected), 0);
  EXPECT_EQ(load_le<std::uint32_t>(&bytes[36]), crc32c(ConstBytes(bytes).first(36)));
}

TEST(FrameHeader, RoundTrips) {
  const FrameHeader in{.type = kDataFrame, .flags = kChecksumFlag, .length = kDataCap, .tag = {~0U, ~0U}, .sequence = ~0ULL};
  const FrameHeader out = decode_header(encode_header(in), FrameClass::data, ~0ULL);
  EXPECT_EQ(out.type, in.type);
  EXPECT_EQ(out.flags, in.flags);
  EXPECT_EQ(out.length, in.length);
  EXPECT_EQ(out.tag, in.tag);
}

TEST(FrameHeader, RefusesEveryFlippedBit) {
  const HeaderBytes good = header_with([](auto&) {});
  for (std::size_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
    HeaderBytes bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_THAT(refusal([&] { decode_header(bad, FrameClass::data, 0); }), testing::StartsWith("corrupt: ")) << "bit " << bit;
  }
}

TEST(FrameHeader, RefusesLengthsOverTheCapOfTheirType) {
  const auto data = [](std::uint16_t type, std::uint64_t length) {
    return refusal([=] { decode_header(header_with([=](auto& h) { h.type = type, h.length = length; }), FrameClass::data, 0); });
  };
  EXPECT_EQ(data(kDataFrame, kDataCap), "accepted");
  for (const std::uint64_t length : {kDataCap + 1, std::uint64_t{1} << 63, ~std::uint64_t{0}})
    EXPECT_THAT(data(kDataFrame, length), HasSubstr("at most"));
  EXPECT_EQ(data(kGoodbyeFrame, 0), "accepted");
  EXPECT_THAT(data(kGoodbyeFrame, 1), HasSubstr("at most 0"));
  EXPECT_EQ(data(kAbortFrame, 4096), "accepted");
  EXPECT_THAT(data(kAbortFrame, 4097), HasSubstr("at most 4096"));
}

TEST(FrameHeader, RefusesTypesAndFlagsOfTheOtherStream) {
  const auto decode = [](std::uint16_t type, std::uint8_t flags, FrameClass stream) {
    return refusal([=] { decode_header(header_with([=](auto& h) { h.type = type, h.flags = flags; }), stream, 0); });
  };
  EXPECT_THAT(decode(1, kMacFlag, FrameClass::data), HasSubstr("unknown type"));
  EXPECT_THAT(decode(0x8004, 0, FrameClass::data), HasSubstr("unknown type"));
  EXPECT_THAT(decode(kDataFrame, kMacFlag, FrameClass::control), HasSubstr("unknown type"));
  EXPECT_THAT(decode(kDataFrame, kMacFlag, FrameClass::data), HasSubstr("unknown flags"));
  for (const std::uint8_t flag : {0x04, 0x80}) EXPECT_THAT(decode(kDataFrame, flag, FrameClass::data), HasSubstr("unknown flags"));
  EXPECT_THAT(decode(1, 0, FrameClass::control), HasSubstr("no MAC"));
  EXPECT_THAT(decode(0, kMacFlag, FrameClass::control), HasSubstr("unknown type"));
}

TEST(FrameHeader, RefusesANumberOutOfTurn) {
  EXPECT_THAT(refusal([] { decode_header(header_with([](auto& h) { h.sequence = 3; }), FrameClass::data, 2); }),
              HasSubstr("lost or replayed"));
}

TEST(ControlFrameReader, FindsFramesHoweverTheStreamIsCut) {
  const Key key = key_of(1);
  std::vector<std::byte> stream = sealed(key, 7, 0, "hello");
  for (const auto& more : {sealed(key, 8, 1, ""), sealed(key, 0x7fff, 2, std::string(3000, 'x'))})
    stream.insert(stream.end(), more.begin(), more.end());
  for (const std::size_t piece : {1UL, 7UL, 40UL, 41UL, 100000UL}) {
    ControlFrameReader reader(key);
    const auto frames = feed(reader, stream, piece);
    ASSERT_EQ(frames.size(), 3U);
    EXPECT_EQ(frames[0].type, 7);
    EXPECT_TRUE(std::ranges::equal(frames[0].body, as_bytes("hello")));
    EXPECT_TRUE(frames[1].body.empty());
    EXPECT_EQ(frames[2].body.size(), 3000U);
    EXPECT_TRUE(reader.between_frames());
  }
}

TEST(ControlFrameReader, RefusesEveryChangedByteAnotherKeyAndAReplay) {
  const Key key = key_of(1);
  const auto good = sealed(key, 7, 0, "hello");
  for (std::size_t at = 0; at < good.size(); ++at) {
    auto bad = good;
    bad[at] ^= std::byte{0x10};
    ControlFrameReader reader(key);
    EXPECT_THAT(refusal([&] { feed(reader, bad, 1000); }), testing::StartsWith("corrupt: ")) << "byte " << at;
  }
  ControlFrameReader other(key_of(2));
  EXPECT_THAT(refusal([&] { feed(other, good, 1000); }), HasSubstr("MAC"));
  ControlFrameReader twice(key);
  EXPECT_EQ(feed(twice, good, 1000).size(), 1U);
  EXPECT_THAT(refusal([&] { feed(twice, good, 1000); }), HasSubstr("replayed"));
}

TEST(ControlFrameReader, AsksForNoMemoryBeforeTheLengthIsKnownToBeFine) {
  ControlFrameReader reader(key_of(1));
  EXPECT_EQ(reader.space().size(), kHeaderBytes);
  const HeaderBytes huge = encode_header({.type = 1, .flags = kMacFlag, .length = kControlCap + 1, .tag = {}, .sequence = 0});
  EXPECT_THAT(refusal([&] { feed(reader, huge, 1000); }), HasSubstr("at most 1048576"));
}

TEST(ControlEnvelope, RefusesWhatTheOtherSideWouldRefuse) {
  const std::vector<std::byte> large(kControlCap + 1);
  EXPECT_THAT(refusal([&] { seal_control(key_of(1), 1, 0, large); }), testing::StartsWith("usage: "));
  EXPECT_THAT(refusal([&] { seal_control(key_of(1), 0, 0, {}); }), testing::StartsWith("usage: "));
  EXPECT_THAT(refusal([&] { seal_control(key_of(1), kDataFrame, 0, {}); }), testing::StartsWith("usage: "));
}

TEST(BlockTrailer, IsGoodVoidOrCorrupt) {
  EXPECT_EQ(decode_trailer(good_trailer(77), 77), BlockTrailer::good);
  EXPECT_EQ(decode_trailer(void_trailer(), 77), BlockTrailer::void_block);
  EXPECT_THAT(refusal([] { decode_trailer(good_trailer(77), 78); }), HasSubstr("checksum"));
  EXPECT_THAT(refusal([] { decode_trailer(TrailerBytes{}, 0); }), HasSubstr("neither good nor void"));
}

TEST(EncodedBytes, CountsAHeaderAndOneTrailerPerBlock) {
  EXPECT_EQ(encoded_bytes(0), 40U);
  EXPECT_EQ(encoded_bytes(1), 49U);
  EXPECT_EQ(encoded_bytes(kBlockBytes), 40U + kBlockBytes + 8);
  EXPECT_EQ(encoded_bytes(kBlockBytes + 1), 40U + kBlockBytes + 1 + 16);
}

}  // namespace
}  // namespace cohort::net
