#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/spec.h"
#include "cohort/base/spec_page.h"
#include "cohort/base/text.h"

namespace cohort {
namespace {

using Type = SpecParam::Type;
constexpr std::string_view kTypeNames[] = {"integer", "real", "true or false", "size", "time", "word", "text", "spec"};

std::string bound_text(const SpecParam& p, double bound) {
  if (p.type == Type::bytes) return exact_bytes(static_cast<std::size_t>(std::clamp(bound, 0.0, 9e18)));
  if (p.type == Type::seconds) return exact_seconds(Seconds{bound});
  return fmt::format("{}", bound);
}

std::string range_text(const SpecParam& p) {
  const bool above = p.low > std::numeric_limits<double>::lowest();
  const bool below = p.high < std::numeric_limits<double>::max();
  if (above && below) return fmt::format(" {}..{}", bound_text(p, p.low), bound_text(p, p.high));
  if (above) return " >= " + bound_text(p, p.low);
  return below ? " <= " + bound_text(p, p.high) : "";
}

std::string type_text(const SpecParam& p) {
  if (p.type == Type::word) return fmt::format("one of {}", join(p.words, ", "));
  return fmt::format("{}{}", kTypeNames[static_cast<int>(p.type)], range_text(p));
}

void check_range(const SpecParam& p, double value) {
  if (value < p.low || value > p.high) throw_failure(Kind::usage, "{} is out of range; allowed is {}", bound_text(p, value), type_text(p));
}

// Throws a Failure whose text completes "ratio: ...".
void check(const SpecParam& p, const std::string& value) {
  switch (p.type) {
    case Type::integer: return check_range(p, static_cast<double>(parse_int(value)));
    case Type::real: return check_range(p, parse_real(value));
    case Type::bytes: return check_range(p, static_cast<double>(parse_bytes(value)));
    case Type::seconds: return check_range(p, parse_seconds(value).count());
    case Type::boolean: parse_bool(value); return;
    case Type::spec: Spec::parse(value); return;
    case Type::text: return;
    case Type::word: break;
  }
  if (std::find(p.words.begin(), p.words.end(), value) != p.words.end()) return;
  const std::vector<std::string_view> known(p.words.begin(), p.words.end());
  throw_unknown("word", value, known);
}

[[noreturn]] void refuse(const Spec& spec, std::size_t column, std::string_view what) {
  const auto text = printable(spec.text.empty() ? spec.to_string() : spec.text);
  if (column == 0) throw_failure(Kind::usage, "spec '{}': {}", text, what);
  throw_failure(Kind::usage, "spec '{}', column {}: {}", text, column, what);
}

void check_given(const SpecParam& p, const Spec& spec, const Spec::Param& given) {
  try {
    check(p, given.value);
  } catch (const Failure& failure) {
    refuse(spec, given.column, fmt::format("{}: {}", p.name, failure.what()));
  }
}

}  // namespace

std::string allowed_text(const SpecParam& param) { return type_text(param); }

const std::string& SpecValues::value(std::string_view name, Type type) const {
  for (const Value& v : values_)
    if (v.name == name && v.type == type) return v.text;
  throw_failure(Kind::bug, "the schema has no {} parameter '{}'", kTypeNames[static_cast<int>(type)], name);
}

std::int64_t SpecValues::integer(std::string_view name) const { return parse_int(value(name, Type::integer)); }
double SpecValues::real(std::string_view name) const { return parse_real(value(name, Type::real)); }
bool SpecValues::boolean(std::string_view name) const { return parse_bool(value(name, Type::boolean)); }
std::size_t SpecValues::bytes(std::string_view name) const { return parse_bytes(value(name, Type::bytes)); }
Seconds SpecValues::seconds(std::string_view name) const { return parse_seconds(value(name, Type::seconds)); }
const std::string& SpecValues::word(std::string_view name) const { return value(name, Type::word); }
const std::string& SpecValues::text(std::string_view name) const { return value(name, Type::text); }
Spec SpecValues::spec(std::string_view name) const { return Spec::parse(value(name, Type::spec)); }

SpecSchema::SpecSchema(std::string name, std::string doc, std::vector<SpecParam> params)
    : name_(std::move(name)), doc_(std::move(doc)), params_(std::move(params)) {
  for (const SpecParam& p : params_) {
    try {
      if (p.preset) check(p, *p.preset);
    } catch (const Failure& failure) {
      throw_failure(Kind::bug, "schema {}: the default of {} is wrong: {}", name_, p.name, failure.what());
    }
  }
}

SpecValues SpecSchema::read(const Spec& spec) const {
  if (spec.name != name_) refuse(spec, 0, fmt::format("is not {}", name_));
  std::vector<std::string_view> known;
  for (const SpecParam& p : params_) known.push_back(p.name);
  if (!spec.params.empty() && spec.params[0].key.empty() && known.size() != 1)
    refuse(spec, spec.params[0].key_column,
           known.empty() ? fmt::format("{} has no parameters", name_)
                         : fmt::format("say which parameter of {} it is: {}={}", name_, known[0], spec.params[0].value));
  for (const auto& given : spec.params)
    if (!given.key.empty() && std::find(known.begin(), known.end(), given.key) == known.end())
      refuse(spec, given.key_column, unknown_text(fmt::format("parameter of {}", name_), given.key, known));
  SpecValues out;
  for (const SpecParam& p : params_) {
    const auto* given = spec.find(p.name);
    if (given == nullptr && !p.preset) refuse(spec, 0, fmt::format("{} needs {} ({}): {}", name_, p.name, type_text(p), p.doc));
    if (given != nullptr) check_given(p, spec, *given);
    out.values_.push_back({p.name, p.type, given != nullptr ? given->value : *p.preset});
  }
  return out;
}

std::string SpecSchema::help() const {
  std::string out = fmt::format("{}: {}\n", name_, doc_);
  for (const SpecParam& p : params_)
    out += fmt::format("  {:<16} {}, {}: {}\n", p.name, type_text(p),
                       p.preset ? "default " + (p.preset->empty() ? std::string("empty") : *p.preset) : "required", p.doc);
  return out;
}

}  // namespace cohort
