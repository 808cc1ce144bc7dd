#include "cohort/observe/text.h"

#include <fmt/format.h>

#include <cmath>

namespace cohort::observe {
namespace {

// Bytes of the well-formed character at the start of text; 0 when there is none (Unicode's table of well-formed sequences).
std::size_t character_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto follows = [&](std::size_t i) { return (at(i) & 0xC0U) == 0x80U; };
  const unsigned a = at(0);
  const unsigned b = at(1);
  if (a < 0x80) return text.empty() ? 0 : 1;
  if (a >= 0xC2 && a <= 0xDF) return follows(1) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) {
    const bool sound = !(a == 0xE0 && b < 0xA0) && !(a == 0xED && b > 0x9F);  // overlong, surrogate
    return sound && follows(1) && follows(2) ? 3 : 0;
  }
  if (a >= 0xF0 && a <= 0xF4) {
    const bool sound = !(a == 0xF0 && b < 0x90) && !(a == 0xF4 && b > 0x8F);  // overlong, above U+10FFFF
    return sound && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

bool is_start(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto bytes = character_bytes(text);
    out += bytes == 0 ? "\xEF\xBF\xBD" : text.substr(0, bytes);
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : valid_utf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (byte < 0x20 || byte == 0x7F || c == '<')
      out += fmt::format("\\u{:04x}", byte);
    else
      out += c;
  }
  return out + '"';
}

std::string json_number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      case '\n':
      case '\t': out += c; break;
      default: out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? "\xEF\xBF\xBD" : std::string(1, c);  // no HTML has these
    }
  }
  return out;
}

std::size_t columns(std::string_view text) {
  std::size_t n = 0;
  for (const char c : text) n += is_start(c) ? 1U : 0U;
  return n;
}

std::string clip(std::string_view text, std::size_t width) {
  if (columns(text) <= width) return std::string(text);
  if (width == 0) return {};
  std::size_t end = 0;
  for (std::size_t seen = 0; end < text.size(); ++end)
    if (is_start(text[end]) && ++seen == width) break;
  return std::string(text.substr(0, end)) + "…";
}

std::string pad_left(std::string_view text, std::size_t width) {
  return std::string(width - std::min(width, columns(text)), ' ') + std::string(text);
}

std::string pad_right(std::string_view text, std::size_t width) {
  return std::string(text) + std::string(width - std::min(width, columns(text)), ' ');
}

}  // namespace cohort::observe
