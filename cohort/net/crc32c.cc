#include <array>
#include <cstring>

#include "cohort/net/frame.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace cohort::net {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli, bits reversed

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? (c >> 1) ^ kPolynomial : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr auto kTable = make_table();

std::uint32_t by_table(const std::byte* at, std::size_t n, std::uint32_t c) {
  for (std::size_t i = 0; i < n; ++i) c = kTable[(c ^ static_cast<std::uint32_t>(at[i])) & 0xff] ^ (c >> 8);
  return c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(const std::byte* at, std::size_t n, std::uint32_t c) {
  std::uint64_t wide = c;
  for (; n >= 8; n -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  auto narrow = static_cast<std::uint32_t>(wide);
  for (; n > 0; --n, ++at) narrow = _mm_crc32_u8(narrow, static_cast<unsigned char>(*at));
  return narrow;
}
#endif

}  // namespace

std::uint32_t crc32c(ConstBytes bytes, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool fast = __builtin_cpu_supports("sse4.2") != 0;
  if (fast) return ~by_instruction(bytes.data(), bytes.size(), ~before);
#endif
  return ~by_table(bytes.data(), bytes.size(), ~before);
}

}  // namespace cohort::net
