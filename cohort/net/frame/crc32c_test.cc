#include <gtest/gtest.h>

#include <vector>

#include "cohort/net/frame/frame.h"

namespace cohort::net {
namespace {

TEST(Crc32c, EqualsTheExamplesOfRfc3720AndContinues) {
  const std::vector<std::byte> zeros(32);
  EXPECT_EQ(crc32c(zeros), 0x8a9136aau);
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xe3069283u);
  for (std::size_t cut = 0; cut <= 9; ++cut)
    EXPECT_EQ(crc32c(as_bytes(std::string_view("123456789").substr(cut)), crc32c(as_bytes(std::string_view("123456789").substr(0, cut)))),
              0xe3069283u);
}

std::uint32_t bit_by_bit(ConstBytes bytes) {
  std::uint32_t c = ~0u;
  for (const std::byte b : bytes) {
    c ^= static_cast<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~c;
}

TEST(Crc32c, OfAnyLengthAnywhereEqualsThatOfTheBits) {
  std::vector<std::byte> bytes(3 * 6144 + 40);
  std::uint32_t state = 1;
  for (auto& b : bytes) b = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  for (const std::size_t around : {0, 2048, 4096, 6144, 2 * 6144, 3 * 6144})
    for (std::size_t n = around < 17 ? 0 : around - 17; n < around + 17; ++n)
      for (const std::size_t first : {std::size_t{0}, n % 8, std::size_t{7}}) {
        const ConstBytes part = ConstBytes(bytes).subspan(first, n);
        ASSERT_EQ(crc32c(part), bit_by_bit(part)) << n << " bytes from " << first;
        ASSERT_EQ(crc32c(part.subspan(n / 3), crc32c(part.first(n / 3))), bit_by_bit(part)) << n << " bytes in two parts";
      }
}

}  // namespace
}  // namespace cohort::net
