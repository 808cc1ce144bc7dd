#include "cohort/cli/verify_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/checkpoint/reshard.h"

namespace cohort::cli {
namespace {

using checkpoint::Contents;
using checkpoint::Dtype;
using nlohmann::json;

constexpr const char* kGradient = "momentum_buffer";  // of the rule that the gradients' run trains with

template <class T>
void widen(const std::vector<std::byte>& bytes, std::vector<double>& into) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  into.assign(values.begin(), values.end());
}

template <class I, class T>
double steps_between(T a, T b) {  // on the line of all numbers of the type, zeros of both signs at one place
  const auto place = [](T x) {
    const I bits = std::bit_cast<I>(x);
    return static_cast<long double>(bits < 0 ? std::numeric_limits<I>::min() - bits : bits);
  };
  return static_cast<double>(std::fabs(place(a) - place(b)));
}

double largest_entry(const std::vector<double>& values) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::fabs(v));
  return most;
}

Contents open_step(const std::string& folder, std::int64_t step) {
  return Contents(checkpoint::open_checkpoint(fmt::format("{}/checkpoints/{}", folder, checkpoint::step_name(step))));
}

json facts_of(const std::string& run) { return json::parse(read_file(run + "/facts.json")); }

// Two patterns may be off in opposite directions, and a third one by as much again.
constexpr double kBetweenPatterns = 2;

void widen_to(std::vector<double>& amplified, const std::vector<double>& reference, const std::vector<double>& shifted) {
  amplified.resize(reference.size());
  for (std::size_t i = 0; i < reference.size() && i < shifted.size(); ++i)
    if (const double by = std::fabs(shifted[i] - reference[i]); std::isfinite(by))
      amplified[i] = std::max(amplified[i], kBetweenPatterns * by);
}

Values numbers_of(const json& list, double (*shown)(double)) {
  Values v{Dtype::f64, {static_cast<std::int64_t>(list.size())}, {}};
  for (const json& x : list) v.at.push_back(shown(x.is_null() ? std::nan("") : x.get<double>()));
  return v;
}

struct Numbers {
  const char *what, *key;
  double (*shown)(double);
};
Comparison compare_numbers(const Numbers& n, const json& reference, const json& value, const json& shifted, double tolerance) {
  Comparison c{.what = n.what};
  const Values a = numbers_of(reference.at(n.key), n.shown), b = numbers_of(value.at(n.key), n.shown);
  Allowed allowed;
  for (const json& pattern : shifted) widen_to(allowed.amplified, a.at, numbers_of(pattern.at(n.key), n.shown).at);
  c.scale = largest_entry(a.at);
  compare(c, fmt::format("{} of the step", n.what), a, b, tolerance, allowed);
  return c;
}

Values gradient_of(const Contents& from, const std::string& name) {
  return read_values(from, checkpoint::kOptimizerGroup, name + "/" + kGradient);
}
std::vector<std::string> learned_of(const Contents& from, std::vector<std::string> names) {  // frozen ones have no gradient
  std::erase_if(names, [&](const auto& name) { return from.find(checkpoint::kOptimizerGroup, name + "/" + kGradient) == nullptr; });
  return names;
}

Comparison compare_gradients(const std::string& reference, const std::string& run, const std::vector<std::string>& names,
                             double tolerance) {
  Comparison c{.what = "gradient"};
  const Contents a = open_step(reference + "/gradients", 1), b = open_step(run + "/gradients", 1);
  const auto learned = learned_of(a, names);
  for (const auto& name : learned) c.scale = std::max(c.scale, largest_entry(gradient_of(a, name).at));
  for (const auto& name : learned) compare(c, name, gradient_of(a, name), gradient_of(b, name), tolerance);
  return c;
}

struct Moved {
  Values by;                     // after - before
  std::vector<double> rounding;  // what storing the sum may have cost
};
Moved moved(const Contents& before, const Contents& after, const std::string& name) {
  const Values from = read_values(before, checkpoint::kModelGroup, name);
  Moved m{read_values(after, checkpoint::kModelGroup, name), {}};
  const double unit = m.by.dtype == Dtype::f64 ? std::numeric_limits<double>::epsilon() : double{std::numeric_limits<float>::epsilon()};
  for (std::size_t i = 0; i < m.by.at.size(); ++i) {
    m.rounding.push_back(2 * unit * std::fabs(m.by.at[i]));
    m.by.at[i] -= from.at[i];
  }
  return m;
}

std::vector<Comparison> compare_parameters(const std::string& reference, const std::string& run, const std::vector<std::string>& names,
                                           std::int64_t steps, std::size_t patterns, double tolerance) {
  Comparison start{.what = "start"}, update{.what = "update"};
  const Contents a0 = open_step(reference + "/update", 0), b0 = open_step(run + "/update", 0);
  const Contents a1 = open_step(reference + "/update", steps), b1 = open_step(run + "/update", steps);
  std::vector<std::unique_ptr<Contents>> shifted;
  for (std::size_t p = 0; p < patterns; ++p)
    shifted.push_back(std::make_unique<Contents>(open_step(fmt::format("{}/shifted-{}", reference, p), steps)));
  for (const auto& name : names) {
    const Values a = read_values(a0, checkpoint::kModelGroup, name);
    start.scale = std::max(start.scale, largest_entry(a.at));
    compare(start, name, a, read_values(b0, checkpoint::kModelGroup, name), 0);
    update.scale = std::max(update.scale, largest_entry(moved(a0, a1, name).by.at));
  }
  for (const auto& name : names) {
    const Moved a = moved(a0, a1, name);
    Allowed allowed{a.rounding, {}};
    for (const auto& pattern : shifted) widen_to(allowed.amplified, a.by.at, moved(a0, *pattern, name).by.at);
    compare(update, name, a.by, moved(b0, b1, name).by, tolerance, allowed);
  }
  return {start, update};
}

}  // namespace

Values read_values(const Contents& from, std::string_view group, std::string_view name) {
  const auto& stored = from.at(group, name);
  std::vector<std::byte> bytes(stored.bytes());
  from.read(stored, 0, stored.elements(), bytes);
  Values v{stored.dtype, stored.shape, {}};
  if (stored.dtype == Dtype::f32)
    widen<float>(bytes, v.at);
  else if (stored.dtype == Dtype::f64)
    widen<double>(bytes, v.at);
  else
    throw_failure(Kind::usage, "{}: {} is of {}; F32 and F64 are compared", from.checkpoint().path, name, dtype_name(stored.dtype));
  return v;
}

double ulps_between(double a, double b, Dtype dtype) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? 0 : std::numeric_limits<double>::infinity();
  if (dtype == Dtype::f64) return steps_between<std::int64_t>(a, b);
  return steps_between<std::int32_t>(static_cast<float>(a), static_cast<float>(b));
}

std::vector<std::int64_t> index_of(std::uint64_t flat, const checkpoint::Shape& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = static_cast<std::int64_t>(flat % static_cast<std::uint64_t>(shape[d]));
    flat /= static_cast<std::uint64_t>(shape[d]);
  }
  return index;
}

void compare(Comparison& into, const std::string& name, const Values& reference, const Values& value, double tolerance,
             const Allowed& allowed) {
  if (reference.shape != value.shape || reference.dtype != value.dtype || reference.at.size() != value.at.size())
    throw_failure(Kind::corrupt, "{} is {} [{}] in one run and {} [{}] in the other", name, dtype_name(reference.dtype),
                  fmt::join(reference.shape, ", "), dtype_name(value.dtype), fmt::join(value.shape, ", "));
  ++into.tensors;
  bool equal = true;
  for (std::size_t i = 0; i < reference.at.size(); ++i) {
    const double a = reference.at[i], b = value.at[i];
    if (std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b)) continue;
    equal = false;
    const double difference = std::isnan(a - b) ? std::numeric_limits<double>::infinity() : std::fabs(a - b);
    if (difference > into.largest) into.largest = difference, into.where = name;
    const double most = tolerance * into.scale + (allowed.rounding.empty() ? 0 : allowed.rounding[i]);
    if (difference <= most) continue;
    if (!allowed.amplified.empty() && difference <= most + allowed.amplified[i])
      ++into.amplified;
    else if (!into.first)
      into.first = Difference{name, index_of(i, reference.shape), a, b, ulps_between(a, b, reference.dtype)};
  }
  into.bit_equal += equal ? 1 : 0;
}

double largest_gradient(const std::string& run) {
  const Contents from = open_step(run + "/gradients", 1);
  double largest = 0;
  for (const auto& name : learned_of(from, facts_of(run).at("names").get<std::vector<std::string>>()))
    largest = std::max(largest, largest_entry(gradient_of(from, name).at));
  return largest;
}

std::vector<Comparison> compare_runs(const std::string& reference, const std::string& run, double tolerance) {
  const json a = facts_of(reference), b = facts_of(run);
  const auto names = a.at("names").get<std::vector<std::string>>();
  const auto steps = static_cast<std::int64_t>(a.at("loss").size());
  const json shifted = json::parse(read_file(reference + "/shifted.json"));
  auto parameters = compare_parameters(reference, run, names, steps, shifted.size(), tolerance);
  return {std::move(parameters[0]), compare_numbers({"loss", "loss", [](double x) { return x; }}, a, b, shifted, tolerance),
          compare_gradients(reference, run, names, tolerance),
          compare_numbers({"norm", "squared", [](double x) { return std::sqrt(x); }}, a, b, shifted, tolerance), std::move(parameters[1])};
}

}  // namespace cohort::cli
