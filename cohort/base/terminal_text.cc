#include "cohort/base/terminal_text.h"

#include "cohort/base/text.h"

namespace cohort {

std::string terminal_text(std::string_view text, std::string_view line_break) {
  constexpr std::size_t kLongestEscape = 4;  // "\x1b": printable() shall cut nothing
  std::string out;
  bool first = true;
  for (const std::string_view line : split(text, '\n')) {
    if (!first) out += line_break;
    first = false;
    out += printable(line, line.size() * kLongestEscape + 1);
  }
  return out;
}

}  // namespace cohort
