#include "cohort/plan/units.h"

#include <string>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort::plan {
namespace {

// "100G" -> 1e11; 0: that is no positive number with a decimal prefix.
double with_prefix(std::string_view text) {
  constexpr std::string_view kPrefixes = "kMGTP";
  double scale = 1;
  if (!text.empty()) {
    const auto at = kPrefixes.find(text.back());
    for (std::size_t i = 0; at != std::string_view::npos && i <= at; ++i) scale *= 1000;
    if (at != std::string_view::npos) text.remove_suffix(1);
  }
  try {
    const double value = parse_real(trim(text)) * scale;
    return value > 0 ? value : 0;
  } catch (const Failure&) {
    return 0;
  }
}

// Takes a unit off the end, if it is there.
bool drop(std::string_view& text, std::string_view unit) {
  if (!text.ends_with(unit)) return false;
  text.remove_suffix(unit.size());
  return true;
}

}  // namespace

double parse_link(std::string_view text) {
  std::string_view rest = trim(text);
  drop(rest, "/s");
  const double value = drop(rest, "bit") ? with_prefix(rest) / 8 : drop(rest, "B") ? with_prefix(rest) : 0;
  if (value <= 0) throw_failure(Kind::usage, "--link '{}': say bits or bytes a second, such as 100Gbit or 12.5GB", printable(text));
  return value;
}

double parse_flops(std::string_view text) {
  std::string_view rest = trim(text);
  drop(rest, "/s");
  if (!drop(rest, "FLOPS")) drop(rest, "FLOP");
  const double value = with_prefix(rest);
  if (value <= 0) throw_failure(Kind::usage, "--flops '{}': say operations a second, such as 312T or 5e12", printable(text));
  return value;
}

double parse_membw(std::string_view text) {
  std::string_view rest = trim(text);
  drop(rest, "/s");
  const double value = drop(rest, "B") ? with_prefix(rest) : 0;
  if (value <= 0) throw_failure(Kind::usage, "--membw '{}': say bytes a second, such as 3.35TB or 40GB", printable(text));
  return value;
}

}  // namespace cohort::plan
