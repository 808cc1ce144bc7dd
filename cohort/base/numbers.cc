// Sizes, times and strict numbers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr double kK = 1024.0;
constexpr Unit kByteUnits[] = {
    {"", 1},
    {"B", 1},
    {"k", kK},
    {"K", kK},
    {"KiB", kK},
    {"kB", 1e3},
    {"KB", 1e3},
    {"M", kK* kK},
    {"MiB", kK* kK},
    {"MB", 1e6},
    {"G", kK* kK* kK},
    {"GiB", kK* kK* kK},
    {"GB", 1e9},
    {"T", kK* kK* kK* kK},
    {"TiB", kK* kK* kK* kK},
    {"TB", 1e12},
};
constexpr Unit kTimeUnits[] = {{"", 1}, {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}};

bool digit(char c) { return c >= '0' && c <= '9'; }

// "1.5 GiB" into the number's text and its unit's factor. Numbers start with a digit: no sign, no "inf".
struct Quantity {
  std::string_view digits;
  double number = 0;
  double factor = 0;
};
template <std::size_t N>
Quantity parse_quantity(std::string_view text, const Unit (&units)[N], std::string_view example) {
  const auto refuse = [&]() { throw_failure(Kind::usage, "'{}' is not {}", printable(text), example); };
  Quantity q;
  const auto body = trim(text);
  if (body.empty() || !digit(body.front())) refuse();
  const auto [end, error] = std::from_chars(body.data(), body.data() + body.size(), q.number);
  if (error != std::errc{}) refuse();
  q.digits = body.substr(0, static_cast<std::size_t>(end - body.data()));
  const auto unit = trim(body.substr(q.digits.size()));
  const auto* row = std::find_if(units, units + N, [&](const Unit& u) { return u.name == unit; });
  if (row == units + N) refuse();
  q.factor = row->factor;
  return q;
}

std::string short_number(double x) {  // three significant digits, never an exponent for what people read
  if (x >= 100) return fmt::format("{:.0f}", x);
  return fmt::format("{:.3g}", x);
}

}  // namespace

std::size_t parse_bytes(std::string_view text) {
  const auto q = parse_quantity(text, kByteUnits, "a size; write it like 4096, 64KiB, 100MB or 25e6");
  const auto too_large = [&]() { throw_failure(Kind::usage, "'{}' is larger than any memory", printable(text)); };
  constexpr double kMost = 9.2e18;  // below 2^63: sizes also travel as signed offsets
  if (!(q.number * q.factor < kMost)) too_large();
  if (std::all_of(q.digits.begin(), q.digits.end(), digit)) {  // exact beyond 2^53
    std::size_t whole = 0;
    std::from_chars(q.digits.data(), q.digits.data() + q.digits.size(), whole);
    return whole * static_cast<std::size_t>(q.factor);
  }
  const double bytes = q.number * q.factor;
  const double whole = std::round(bytes);
  if (std::abs(bytes - whole) > 1e-12 * bytes) throw_failure(Kind::usage, "'{}' is not a whole number of bytes", printable(text));
  return static_cast<std::size_t>(whole);
}

std::string format_bytes(std::size_t bytes) {
  constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= kK && unit < 6; ++unit) value /= kK;
  return fmt::format("{} {}", short_number(value), kNames[unit]);
}

std::string exact_bytes(std::size_t bytes) {
  constexpr const char* kNames[] = {"", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes != 0 && bytes % 1024 == 0 && unit < 4; ++unit) bytes /= 1024;
  return fmt::format("{}{}", bytes, kNames[unit]);
}

Seconds parse_seconds(std::string_view text) {
  const auto q = parse_quantity(text, kTimeUnits, "a time; write it like 500ms, 2s or 5min");
  const double seconds = q.number * q.factor;
  if (!std::isfinite(seconds)) throw_failure(Kind::usage, "'{}' is too long a time", printable(text));
  return Seconds{seconds};
}

std::string format_seconds(Seconds span) {
  const double s = span.count();
  if (s < 0) return "-" + format_seconds(-span);
  if (s == 0) return "0 s";
  if (s < 999.5e-9) return short_number(s * 1e9) + " ns";
  if (s < 999.5e-6) return short_number(s * 1e6) + " us";
  if (s < 999.5e-3) return short_number(s * 1e3) + " ms";
  if (s < 120) return short_number(s) + " s";
  if (s < 7200) return short_number(s / 60) + " min";
  return short_number(s / 3600) + " h";
}

std::string format_us(Seconds span) { return short_number(span.count() * 1e6); }

std::string exact_seconds(Seconds span) { return fmt::format("{}s", span.count()); }

std::int64_t parse_int(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) throw_failure(Kind::usage, "'{}' does not fit in 64 bits", printable(text));
  if (error != std::errc{} || end != text.data() + text.size())
    throw_failure(Kind::usage, "'{}' is not an integer; write digits only, like 1000", printable(text));
  const auto digits = text.substr(text.front() == '-' ? 1 : 0);
  if (digits.size() > 1 && digits.front() == '0')
    throw_failure(Kind::usage, "'{}' could be read as octal; write the integer without leading zeros", printable(text));
  return value;
}

double parse_real(std::string_view text) {
  double value = 0;
  const auto body = text.substr(text.starts_with('-') ? 1 : 0);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) throw_failure(Kind::usage, "'{}' does not fit in a double", printable(text));
  if (error != std::errc{} || end != text.data() + text.size() || !digit(body.front()))
    throw_failure(Kind::usage, "'{}' is not a number; write it like 0.01 or 1e-3", printable(text));
  return value;
}

bool parse_bool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  throw_failure(Kind::usage, "'{}' is not a truth value; write true or false", printable(text));
}

}  // namespace cohort
