#include "cohort/net/crypto.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cohort/net/frame.h"

namespace cohort::net {
namespace {

std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return out;
}

std::string to_hex(ConstBytes bytes) {
  std::string out;
  for (const std::byte b : bytes) out += fmt::format("{:02x}", static_cast<unsigned>(b));
  return out;
}

TEST(Hmac, EqualsTheSecondExampleOfRfc4231HoweverItIsCut) {
  const auto expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
  EXPECT_EQ(to_hex(hmac(as_bytes("Jefe"), {as_bytes("what do ya want for nothing?")})), expected);
  EXPECT_EQ(to_hex(hmac(as_bytes("Jefe"), {as_bytes("what do ya "), {}, as_bytes("want for nothing?")})), expected);
}

TEST(Hkdf, EqualsTheFirstExampleOfRfc5869) {
  const auto secret = from_hex("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b");
  const auto salt = from_hex("000102030405060708090a0b0c");
  const auto info = from_hex("f0f1f2f3f4f5f6f7f8f9");
  std::array<std::byte, 42> out;
  hkdf(salt, secret, info, out);
  EXPECT_EQ(to_hex(out), "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
}

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
