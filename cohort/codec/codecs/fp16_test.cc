#include <gmock/gmock.h>

#include "cohort/base/half.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

std::uint16_t narrowed(const Codec& codec, float x) {
  const Layout layout = layout_of({1});
  std::vector<float> values(layout.count, x);
  std::uint16_t half = 0;
  std::memcpy(&half, encoded(codec, layout, values).data(), 2);
  return half;
}

TEST(Fp16, RoundsToNearestEven) {
  const auto codec = make("fp16");
  EXPECT_EQ(narrowed(*codec, 1.0F), 0x3c00);
  EXPECT_EQ(narrowed(*codec, 1.0F + 0x1p-11F), 0x3c00);             // half way, to even
  EXPECT_EQ(narrowed(*codec, 1.0F + 0x3p-11F), 0x3c02);             // half way, to even
  EXPECT_EQ(narrowed(*codec, 1.0F + 0x1p-11F + 0x1p-23F), 0x3c01);  // just above
  EXPECT_EQ(narrowed(*codec, -0x1p-24F), 0x8001);                   // the smallest
  EXPECT_EQ(narrowed(*codec, 0x1p-25F), 0x0000);                    // half of it, to even
  EXPECT_EQ(narrowed(*codec, -0.0F), 0x8000);
}

TEST(Fp16, BecomesInfiniteFrom65520On) {
  const auto codec = make("fp16");
  EXPECT_EQ(narrowed(*codec, 65504.0F), 0x7bff);
  EXPECT_EQ(narrowed(*codec, 65519.99F), 0x7bff);
  EXPECT_EQ(narrowed(*codec, 65520.0F), 0x7c00);
  EXPECT_EQ(narrowed(*codec, -1e30F), 0xfc00);
}

TEST(Fp16, HasTheBitsOfTheOneConversionOfTheLibraryForSixteenMillionNumbers) {
  const auto codec = make("fp16");
  const Layout layout = layout_of({1 << 16});
  std::vector<float> values(layout.count);
  for (std::uint32_t high = 0; high < 256; ++high) {
    for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = std::bit_cast<float>((high << 24) | (i << 8) | (i * 37 & 0xff));
    const Buffer payload = encoded(*codec, layout, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, payload.data() + 2 * i, 2);
      ASSERT_EQ(half, to_f16(values[i])) << values[i];
    }
  }
}

TEST(Fp16, HasOneMixForSumsIn16BitsAndOneForSumsInFp32) {
  EXPECT_EQ(make("fp16")->mix(), Mix::add);
  EXPECT_EQ(make("fp16")->payload(), Dtype::f16);
  EXPECT_EQ(make("fp16(sum=fp32)")->mix(), Mix::hops);
}

}  // namespace
}  // namespace cohort::codec
