#include "cohort/observe/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <variant>

#include "cohort/base/error.h"
#include "cohort/observe/text.h"

namespace cohort::observe {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name(std::string_view name, bool colon) {
  const auto letter = [&](char c) { return is_letter(c) || (colon && c == ':'); };
  return !name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || is_digit(c); });
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\\' || (quotes && c == '"'))
      out += {'\\', c};
    else
      out += c;
  }
  return out;
}

// rank="0",host="a": sorted, so that the same labels in another order are the same metric.
std::string label_text(Labels labels) {
  std::sort(labels.begin(), labels.end());
  std::string out;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto& [name, value] = labels[i];
    if (!is_name(name, false) || name.starts_with("__") || name == "le" || name == "quantile")
      throw_failure(Kind::usage,
                    "metric label '{}': a label is letters, digits and _, starts with no digit and no __, and is not le or quantile", name);
    if (i > 0 && labels[i - 1].first == name) throw_failure(Kind::usage, "metric label '{}' is given twice", name);
    out += fmt::format("{}{}=\"{}\"", i == 0 ? "" : ",", name, escaped(value, true));
  }
  return out;
}

std::string braced(std::string_view labels) { return labels.empty() ? std::string() : fmt::format("{{{}}}", labels); }

void append_histogram(std::string& out, std::string_view name, const std::string& labels, const Distribution::State& state) {
  for (std::size_t i = 0; i < state.cumulative.size(); ++i) {
    const auto le = i < state.bounds.size() ? number(state.bounds[i]) : "+Inf";
    out += fmt::format("{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, labels.empty() ? "" : ",", le, state.cumulative[i]);
  }
  out += fmt::format("{}_sum{} {}\n", name, braced(labels), number(state.sum));
  out += fmt::format("{}_count{} {}\n", name, braced(labels), state.cumulative.back());
}

constexpr std::array<std::string_view, 3> kHistogramSuffixes{"_bucket", "_sum", "_count"};

}  // namespace

struct Registry::Family {
  using Metric = std::variant<std::unique_ptr<Gauge>, std::unique_ptr<Counter>, std::unique_ptr<Distribution>>;
  std::string help;
  std::string_view type;
  std::map<std::string, Metric> metrics{};  // by their labels

  template <class T, class... Args>
  T& get(const std::string& labels, const Args&... args) {
    const auto found = metrics.find(labels);
    if (found != metrics.end()) return *std::get<std::unique_ptr<T>>(found->second);
    return *std::get<std::unique_ptr<T>>(metrics.emplace(labels, std::make_unique<T>(args...)).first->second);
  }
};

Registry::Registry() = default;
Registry::~Registry() = default;

void Counter::add(double value) {
  if (!(value >= 0) || std::isinf(value)) throw_failure(Kind::usage, "a counter only rises: cannot add {}; use a gauge", value);
  value_.fetch_add(value, std::memory_order_relaxed);
}

Distribution::Distribution(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  for (std::size_t i = 0; i < bounds_.size(); ++i)
    if (!std::isfinite(bounds_[i]) || (i > 0 && bounds_[i] <= bounds_[i - 1]))
      throw_failure(Kind::usage, "histogram bounds must be finite and rise; bound {} is {}", i, bounds_[i]);
}

void Distribution::observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();  // nan compares with nothing:
  const auto at = std::isnan(value) ? bounds_.size() : static_cast<std::size_t>(bucket);          // it is counted under +Inf
  const std::lock_guard lock(mutex_);
  ++counts_[at];
  sum_ += value;
}

Distribution::State Distribution::state() const {
  State out{bounds_, {}, 0};
  const std::lock_guard lock(mutex_);
  std::uint64_t total = 0;
  for (const auto count : counts_) out.cumulative.push_back(total += count);
  out.sum = sum_;
  return out;
}

// x as a histogram writes x_sum: nobody else may.
void Registry::check_free(std::string_view name, std::string_view type) const {
  for (const auto suffix : kHistogramSuffixes) {
    if (name.ends_with(suffix)) {
      const auto owner = families_.find(name.substr(0, name.size() - suffix.size()));
      if (owner != families_.end() && owner->second.type == "histogram")
        throw_failure(Kind::usage, "metric '{}' is a line of the histogram '{}'", name, owner->first);
    }
    if (type == "histogram" && families_.contains(fmt::format("{}{}", name, suffix)))
      throw_failure(Kind::usage, "histogram '{0}' would write '{0}{1}', which is a metric of its own", name, suffix);
  }
}

Registry::Family& Registry::family(std::string_view name, std::string_view help, std::string_view type) {
  if (!is_name(name, true)) throw_failure(Kind::usage, "metric name '{}': it is letters, digits, _ and :, and starts with no digit", name);
  const auto found = families_.find(name);
  if (found == families_.end()) {
    check_free(name, type);
    return families_.emplace(std::string(name), Family{std::string(help), type}).first->second;
  }
  if (found->second.type != type) throw_failure(Kind::usage, "metric '{}' is a {}; it cannot also be a {}", name, found->second.type, type);
  return found->second;
}

Gauge& Registry::gauge(std::string_view name, std::string_view help, const Labels& labels) {
  const auto key = label_text(labels);
  const std::lock_guard lock(mutex_);
  return family(name, help, "gauge").get<Gauge>(key);
}

Counter& Registry::counter(std::string_view name, std::string_view help, const Labels& labels) {
  const auto key = label_text(labels);
  const std::lock_guard lock(mutex_);
  return family(name, help, "counter").get<Counter>(key);
}

Distribution& Registry::histogram(std::string_view name, std::string_view help, const std::vector<double>& bounds, const Labels& labels) {
  const auto key = label_text(labels);
  (void)Distribution(bounds);  // refuses bad bounds before a family exists
  const std::lock_guard lock(mutex_);
  auto& metric = family(name, help, "histogram").get<Distribution>(key, bounds);
  if (metric.state().bounds != bounds) throw_failure(Kind::usage, "histogram '{}' exists with other bounds", name);
  return metric;
}

std::string Registry::text() const {
  std::string out;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, family] : families_) {
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(family.help, false), name, family.type);
    for (const auto& [labels, metric] : family.metrics) {
      if (const auto* histogram = std::get_if<std::unique_ptr<Distribution>>(&metric))
        append_histogram(out, name, labels, (*histogram)->state());
      else if (const auto* gauge = std::get_if<std::unique_ptr<Gauge>>(&metric))
        out += fmt::format("{}{} {}\n", name, braced(labels), number((*gauge)->value()));
      else
        out += fmt::format("{}{} {}\n", name, braced(labels), number(std::get<std::unique_ptr<Counter>>(metric)->value()));
    }
  }
  return out;
}

}  // namespace cohort::observe
