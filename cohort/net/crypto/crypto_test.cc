#include "cohort/net/crypto/crypto.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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

}  // namespace
}  // namespace cohort::net
