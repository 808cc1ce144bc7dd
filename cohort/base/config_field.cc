// A field as text and back: one reader and one writer per type.
#include <algorithm>

#include "cohort/base/config.h"
#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort {
namespace {

template <class T>
struct Type {};  // names the type for read_one

// One row per alternative of FieldTarget, in its order.
constexpr std::string_view kTypes[] = {"true or false", "integer", "integer",          "real",          "text",          "time",
                                       "size",          "word",    "list of integers", "list of reals", "list of texts", "list of times",
                                       "list of sizes"};
static_assert(std::size(kTypes) == std::variant_size_v<FieldTarget>);

constexpr std::string_view kYamlTraps[] = {"true", "false", "yes", "no", "on", "off", "null", "~", "y", "n"};

std::string bound_text(const Field& f, double bound) {
  const auto type = f.type();
  if (type.ends_with("size") || type.ends_with("sizes")) return exact_bytes(static_cast<std::size_t>(std::clamp(bound, 0.0, 9e18)));
  if (type.ends_with("time") || type.ends_with("times")) return exact_seconds(Seconds{bound});
  return fmt::format("{}", bound);
}

void check_range(const Field& f, double value) {
  if (value >= f.range.low && value <= f.range.high) return;
  throw_failure(Kind::usage, "{} is out of range; allowed is {}", bound_text(f, value), f.allowed());
}

std::size_t word_index(const Field& f, const std::string& text) {
  const auto at = std::find(f.words.begin(), f.words.end(), text);
  if (at != f.words.end()) return static_cast<std::size_t>(at - f.words.begin());
  const std::vector<std::string_view> known(f.words.begin(), f.words.end());
  throw_unknown("word", text, known);
}

void refuse_quotes(const Scalar& s) {
  if (s.quoted) throw_failure(Kind::usage, "\"{}\" is quoted text; take the quotes off", printable(s.text));
}

bool read_one(const Field&, const Scalar& s, Type<bool>) {
  refuse_quotes(s);
  return parse_bool(s.text);
}

std::int64_t read_one(const Field& f, const Scalar& s, Type<std::int64_t>) {
  refuse_quotes(s);
  const auto value = parse_int(s.text);
  check_range(f, static_cast<double>(value));
  return value;
}

int read_one(const Field& f, const Scalar& s, Type<int>) {
  const auto value = read_one(f, s, Type<std::int64_t>{});
  if (value != static_cast<int>(value)) throw_failure(Kind::usage, "{} does not fit in 32 bits", value);
  return static_cast<int>(value);
}

double read_one(const Field& f, const Scalar& s, Type<double>) {
  refuse_quotes(s);
  const double value = parse_real(s.text);
  check_range(f, value);
  return value;
}

Seconds read_one(const Field& f, const Scalar& s, Type<Seconds>) {
  const auto value = parse_seconds(s.text);
  check_range(f, value.count());
  return value;
}

ByteSize read_one(const Field& f, const Scalar& s, Type<ByteSize>) {
  const auto value = parse_bytes(s.text);
  check_range(f, static_cast<double>(value));
  return {value};
}

std::string read_one(const Field& f, const Scalar& s, Type<std::string>) {
  std::string folded = s.text;
  for (char& c : folded) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  const bool is_word = std::find(f.words.begin(), f.words.end(), s.text) != f.words.end();
  if (!s.quoted && !is_word && (s.text.empty() || std::find(std::begin(kYamlTraps), std::end(kYamlTraps), folded) != std::end(kYamlTraps)))
    throw_failure(Kind::usage, "'{}' without quotes is not text in YAML; write \"{}\"", s.text, s.text);
  if (!f.words.empty()) word_index(f, s.text);
  return s.text;
}

std::string write_one(bool value) { return value ? "true" : "false"; }
std::string write_one(std::int64_t value) { return std::to_string(value); }
std::string write_one(int value) { return std::to_string(value); }
std::string write_one(double value) { return fmt::format("{}", value); }
std::string write_one(Seconds value) { return exact_seconds(value); }
std::string write_one(ByteSize value) { return exact_bytes(value); }
std::string write_one(const std::string& value) { return value; }

// Reads all, then stores: a list is replaced whole or not at all.
template <class T>
void store(const Field& f, T* at, std::span<const Scalar> values, bool keep) {
  T value = read_one(f, values.front(), Type<T>{});
  if (keep) *at = std::move(value);
}
template <class T>
void store(const Field& f, std::vector<T>* at, std::span<const Scalar> values, bool keep) {
  std::vector<T> list;
  for (const Scalar& s : values) list.push_back(read_one(f, s, Type<T>{}));
  if (keep) *at = std::move(list);
}
void store(const Field& f, const EnumTarget& at, std::span<const Scalar> values, bool keep) {
  const auto index = word_index(f, values.front().text);
  if (keep) at.set(at.at, index);
}

template <class T>
std::vector<std::string> load(const Field&, const T* at) {
  return {write_one(*at)};
}
template <class T>
std::vector<std::string> load(const Field&, const std::vector<T>* at) {
  std::vector<std::string> list;
  for (const T& value : *at) list.push_back(write_one(value));
  return list;
}
std::vector<std::string> load(const Field& f, const EnumTarget& at) {
  const auto index = at.get(at.at);
  if (index >= f.words.size()) throw_failure(Kind::bug, "field '{}' has {} words and the value {}", f.path, f.words.size(), index);
  return {f.words[index]};
}

}  // namespace

bool Field::is_list() const { return type().starts_with("list"); }
std::string_view Field::type() const { return kTypes[target.index()]; }

std::string Field::allowed() const {
  if (!words.empty()) return join(words, ", ");
  const bool above = range.low > Range{}.low;
  const bool below = range.high < Range{}.high;
  if (above && below) return fmt::format("{}..{}", bound_text(*this, range.low), bound_text(*this, range.high));
  if (above) return "at least " + bound_text(*this, range.low);
  return below ? "at most " + bound_text(*this, range.high) : "";
}

std::vector<std::string> Field::values() const {
  return std::visit([&](const auto& at) { return load(*this, at); }, target);
}

std::string Field::text() const { return join(values(), ","); }

void Field::assign(std::span<const Scalar> given, Source from) {
  if (given.size() != 1 && !is_list()) throw_failure(Kind::usage, "takes one value, not {}", given.size());
  const bool keep = from >= source;
  std::visit([&](const auto& at) { store(*this, at, given, keep); }, target);
  if (keep) source = from;
}

}  // namespace cohort
