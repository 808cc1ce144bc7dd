#include "cohort/base/text.h"

#include <algorithm>

#include "cohort/base/error.h"

namespace cohort {
namespace {

constexpr std::size_t kMostListed = 40;  // names; where one is near, a longer list hides it

std::string fold(std::string_view name) {  // what typists mix up anyway: case, and - for _
  std::string out(name.substr(0, 64));     // distance is quadratic; nobody's name is longer
  for (char& c : out) c = c == '-' ? '_' : (c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  return out;
}

// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

template <class Part>
std::string join_parts(std::span<const Part> parts, std::string_view separator) {
  std::string out;
  for (const auto& part : parts) {
    if (&part != parts.data()) out += separator;
    out += part;
  }
  return out;
}

}  // namespace

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
    if (text.empty()) parts.emplace_back();
  }
  return parts;
}

std::string join(std::span<const std::string> parts, std::string_view separator) { return join_parts(parts, separator); }
std::string join(std::span<const std::string_view> parts, std::string_view separator) { return join_parts(parts, separator); }

std::string printable(std::string_view text, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (out.size() >= most) return out + "...";
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;  // control codes spelt in UTF-8
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c < 0x20 || c == 0x7f || c1)
      out += fmt::format("\\x{:02x}", c);
    else
      out += text[i];
  }
  return out;
}

std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates) {
  const auto wanted = fold(name);
  std::size_t best = std::max<std::size_t>(1, wanted.size() / 3) + 1;  // a third of the letters may be wrong
  std::string_view found;
  for (const auto candidate : candidates) {
    const auto distance = edit_distance(wanted, fold(candidate));
    if (distance < best && distance < candidate.size()) best = distance, found = candidate;
  }
  return found;
}

std::string unknown_text(std::string_view what, std::string_view name, std::span<const std::string_view> known) {
  const auto near = nearest(name, known);
  const auto hint = near.empty() ? std::string() : fmt::format(" did you mean '{}'?", near);
  if (!near.empty() && known.size() > kMostListed) return fmt::format("unknown {} '{}';{}", what, printable(name), hint);
  return fmt::format("unknown {} '{}';{} known: {}", what, printable(name), hint, known.empty() ? "none" : join(known, ", "));
}

void throw_unknown(std::string_view what, std::string_view name, std::span<const std::string_view> known) {
  throw Failure{{Kind::usage, unknown_text(what, name, known), kNoRank}};
}

}  // namespace cohort
