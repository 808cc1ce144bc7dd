#include "cohort/data/csv_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "cohort/base/text.h"

namespace cohort::data {

bool csv_missing(std::string_view field) {
  constexpr std::array<std::string_view, 6> kWords{"na", "n/a", "nan", "null", "none", "?"};
  constexpr std::size_t kLongest = 4;
  const std::string_view text = trim(field);
  if (text.empty()) return true;
  if (text.size() > kLongest) return false;
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return std::find(kWords.begin(), kWords.end(), lower) != kWords.end();
}

std::optional<float> csv_float(std::string_view field) {
  std::string_view text = trim(field);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  const auto narrow = static_cast<float>(value);
  if (!std::isfinite(narrow)) return std::nullopt;
  return narrow;
}

}  // namespace cohort::data
