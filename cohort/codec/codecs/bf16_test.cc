#include <gmock/gmock.h>

#include "cohort/base/half.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

TEST(Bf16, HasTheBitsOfTheOneConversionOfTheLibraryForSixteenMillionNumbers) {
  const auto codec = make("bf16");
  const Layout layout = layout_of({1 << 16});
  std::vector<float> values(layout.count);
  for (std::uint32_t high = 0; high < 256; ++high) {
    for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = std::bit_cast<float>((high << 24) | (i << 8) | (i * 37 & 0xff));
    const Buffer payload = encoded(*codec, layout, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, payload.data() + 2 * i, 2);
      ASSERT_EQ(half, to_bf16(values[i])) << values[i];
    }
  }
}

TEST(Bf16, RoundsToNearestEvenAndKeepsTheRangeOfFp32) {
  const auto codec = make("bf16");
  const Layout layout = layout_of({16});
  std::vector<float> values(16);
  values[0] = 1 + 0x1p-8F;  // half way, to even
  values[1] = 1 + 0x3p-8F;  // half way, to even
  values[2] = 1 + 0x1p-8F + 0x1p-20F;
  values[3] = 0x1.fep127F;  // the largest bf16
  values[4] = 0x1.ffp127F;  // half way to 2^128
  const auto back = sent(*codec, layout, values);
  EXPECT_EQ(back[0], 1);
  EXPECT_EQ(back[1], 1 + 0x1p-6F);
  EXPECT_EQ(back[2], 1 + 0x1p-7F);
  EXPECT_EQ(back[3], 0x1.fep127F);
  EXPECT_EQ(back[4], INFINITY);
}

TEST(Bf16, HasOneMixForSumsIn16BitsAndOneForSumsInFp32) {
  EXPECT_EQ(make("bf16")->mix(), Mix::add);
  EXPECT_EQ(make("bf16")->payload(), Dtype::bf16);
  EXPECT_EQ(make("bf16(sum=fp32)")->mix(), Mix::hops);
}

}  // namespace
}  // namespace cohort::codec
