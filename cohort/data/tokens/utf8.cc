#include "cohort/data/tokens/utf8.h"

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort::data {

char32_t next_code_point(std::string_view text, std::size_t& at, std::string_view where) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t first = byte(at);
  if (first < 0x80) return static_cast<char32_t>(text[at++]);
  const std::size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  constexpr std::uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  std::uint32_t point = first & (0x3FU >> more);
  bool good = first >= 0xC2 && first <= 0xF4 && at + more < text.size();
  for (std::size_t i = 1; good && i <= more; ++i) {
    good = continues_character(text[at + i]);
    point = point << 6U | (byte(at + i) & 0x3FU);
  }
  if (!good || point < kLeast[more] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
    throw_failure(Kind::corrupt, "{}: byte {} (0x{:02x}) begins no character of UTF-8; convert the text (iconv -t UTF-8)", printable(where),
                  at, first);
  at += more + 1;
  return point;
}

void append_utf8(std::string& out, char32_t point) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) return put(point);
  if (point < 0x800) return put(0xC0 | point >> 6U), put(0x80 | (point & 0x3FU));
  if (point < 0x10000) return put(0xE0 | point >> 12U), put(0x80 | (point >> 6U & 0x3FU)), put(0x80 | (point & 0x3FU));
  put(0xF0 | point >> 18U), put(0x80 | (point >> 12U & 0x3FU)), put(0x80 | (point >> 6U & 0x3FU)), put(0x80 | (point & 0x3FU));
}

std::string utf8(char32_t point) {
  std::string text;
  append_utf8(text, point);
  return text;
}

}  // namespace cohort::data
