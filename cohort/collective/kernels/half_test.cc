#include "cohort/base/half.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>

#include "cohort/collective/kernels/kernels.h"
#include "cohort/collective/kernels/reference.h"

namespace cohort::collective {
namespace {

using reference::Format;
constexpr Format kF16{16, 10}, kBf16{16, 7}, kF32{32, 23};

template <class Widen>
void expect_exact(Format format, Widen widen) {
  for (std::uint32_t half = 0; half < 65536; ++half) {
    const float wide = widen(static_cast<std::uint16_t>(half));
    if (format.nan(half)) {
      EXPECT_TRUE(std::isnan(wide)) << std::hex << half;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(wide), reference::encode(kF32, reference::decode(format, half))) << std::hex << half;
    }
  }
}

// Every value, the midpoint to the next one, and the f32 on either side of both: all the places where rounding can go wrong.
template <class Narrow>
void expect_nearest(Format format, Narrow narrow) {
  for (std::uint32_t half = 0; half < format.exponent(); ++half) {
    const auto here = static_cast<float>(reference::decode(format, half));
    const double step = reference::decode(format, half == format.exponent() - 1 ? half : half + 1) -
                        reference::decode(format, half - (half == format.exponent() - 1));
    const auto middle = static_cast<float>(here + step / 2);
    for (const float start : {here, middle})
      for (const float wide : {std::nextafterf(start, -1e38f), start, std::nextafterf(start, INFINITY)})
        for (const float value : {wide, -wide}) ASSERT_EQ(narrow(value), reference::encode(format, value)) << std::hexfloat << value;
  }
  EXPECT_EQ(narrow(INFINITY), format.exponent());
  EXPECT_EQ(narrow(-INFINITY), format.sign() | format.exponent());
}

TEST(Half, WideningIsExactForAll65536Values) {
  expect_exact(kF16, from_f16);
  expect_exact(kBf16, from_bf16);
}

TEST(Half, NarrowingRoundsToNearestEvenAtEveryValueAndMidpoint) {
  expect_nearest(kF16, to_f16);
  expect_nearest(kBf16, to_bf16);
}

TEST(Half, ANaNTurnsQuietAndKeepsTheUpperBitsOfItsPayload) {
  for (std::uint32_t half = 0; half < 65536; ++half) {
    if (kF16.nan(half)) {
      EXPECT_EQ(to_f16(from_f16(static_cast<std::uint16_t>(half))), half | 0x200u);
    }
    if (kBf16.nan(half)) {
      EXPECT_EQ(to_bf16(from_bf16(static_cast<std::uint16_t>(half))), half | 0x40u);
    }
  }
  EXPECT_EQ(to_f16(std::bit_cast<float>(0x7f800001u)), 0x7e00u);  // payload too low to survive: still a NaN
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0xff800001u)), 0xffc0u);
}

// Adding minus zero widens, adds nothing, and narrows: the conversions inside each set, instructions or not, on every value.
TEST(Half, EverySetConvertsAll65536ValuesAlike) {
  std::vector<std::uint16_t> values(65536), zeros(65536, 0x8000), sums(65536);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i);
  const std::array<const void*, 2> sources = {values.data(), zeros.data()};
  const std::array<void*, 1> targets = {sums.data()};
  for (const Kernels& set : runnable_kernels())
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
      set.reduce({dtype, Op::sum}, sources, targets, values.size());
      const Format format = reference::format_of(dtype);
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(sums[i], format.nan(i) ? i | format.quiet() : i) << set.name << " " << name_of(dtype) << " " << std::hex << i;
    }
}

}  // namespace
}  // namespace cohort::collective
