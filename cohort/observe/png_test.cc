#include "cohort/observe/png.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <vector>

#include "cohort/base/failure_of.h"

namespace cohort::observe {
namespace {

using testing::HasSubstr;

std::uint32_t big(std::string_view text, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(text.at(at + i));
  return value;
}

struct Chunk {
  std::string type, data;
};

std::vector<Chunk> chunks_of(const std::string& png) {
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::vector<Chunk> out;
  for (std::size_t at = 8; at < png.size();) {
    const auto length = big(png, at);
    out.push_back({png.substr(at + 4, 4), png.substr(at + 8, length)});
    const auto* body = reinterpret_cast<const Bytef*>(png.data() + at + 4);
    EXPECT_EQ(big(png, at + 8 + length), crc32(0, body, length + 4)) << out.back().type;
    at += 12 + length;
  }
  return out;
}

TEST(Png, HoldsThePixelsRowByRow) {
  std::vector<std::uint8_t> pixels;
  for (int i = 0; i < 5 * 3 * 3; ++i) pixels.push_back(static_cast<std::uint8_t>(i * 5));
  const auto chunks = chunks_of(encode_png({.width = 5, .height = 3, .channels = 3, .pixels = pixels}));
  ASSERT_EQ(chunks.size(), 3U);
  EXPECT_EQ(chunks[0].type, "IHDR");
  EXPECT_EQ(chunks[0].data, std::string("\0\0\0\5\0\0\0\3\10\2\0\0\0", 13));
  EXPECT_EQ(chunks[2].type, "IEND");
  std::string raw(3 * (1 + 15), '\0');
  uLongf size = raw.size();
  ASSERT_EQ(
      uncompress(reinterpret_cast<Bytef*>(raw.data()), &size, reinterpret_cast<const Bytef*>(chunks[1].data.data()), chunks[1].data.size()),
      Z_OK);
  ASSERT_EQ(size, raw.size());
  for (std::size_t y = 0; y < 3; ++y)
    EXPECT_EQ(raw.substr(y * 16, 16), std::string(1, '\0') + std::string(pixels.begin() + static_cast<long>(y) * 15,
                                                                         pixels.begin() + static_cast<long>(y) * 15 + 15));
}

TEST(Png, RefusesWhatIsNoPicture) {
  const std::vector<std::uint8_t> six(6);
  const auto refusal = [&](int w, int h, int c) {
    return failure_of([&] { encode_png({.width = w, .height = h, .channels = c, .pixels = six}); });
  };
  EXPECT_THAT(refusal(2, 3, 2).what, HasSubstr("2 channels"));
  EXPECT_THAT(refusal(0, 3, 1).what, HasSubstr("0 x 3"));
  EXPECT_THAT(refusal(4, 2, 1).what, HasSubstr("needs 8"));
  EXPECT_EQ(refusal(1 << 30, 1 << 30, 1).kind, Kind::usage);
  EXPECT_NO_THROW(encode_png({.width = 2, .height = 3, .channels = 1, .pixels = six}));
}

}  // namespace
}  // namespace cohort::observe
