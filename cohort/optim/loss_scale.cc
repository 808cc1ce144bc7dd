#include "cohort/optim/loss_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/registry.h"
#include "cohort/base/text.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/scale_rule.h"

namespace cohort::optim {
namespace {

constexpr double kMostScale = std::numeric_limits<float>::max(), kLeastScale = std::numeric_limits<float>::min();

// Rule sets that former versions had, each with what takes its place.
constexpr std::pair<std::string_view, std::string_view> kRemoved[] = {
    {"megatron", "deepspeed(init=4294967296)"}, {"colossalai", "deepspeed(min=0)"}, {"fairscale", "torch(init=32768)"}};

void refuse_removed(std::string_view name) {
  for (const auto& [was, now] : kRemoved)
    if (was == name) throw_failure(Kind::usage, "loss scale '{}' is no rule any more: say {}, or other parameters of it", was, now);
}

double real_or(const SpecSchema& schema, const SpecValues& values, std::string_view name, double otherwise) {
  for (const SpecParam& p : schema.params())
    if (p.name == name) return p.type == SpecParam::Type::integer ? static_cast<double>(values.integer(name)) : values.real(name);
  return otherwise;
}

template <class Number>
Number read_value(std::string_view text, std::string_view whole) {
  Number value{};
  const bool hex = std::is_floating_point_v<Number> && text.starts_with("0x");
  const char *first = text.data() + (hex ? 2 : 0), *last = text.data() + text.size();
  std::from_chars_result end{};
  if constexpr (std::is_floating_point_v<Number>)
    end = std::from_chars(first, last, value, std::chars_format::hex);
  else
    end = std::from_chars(first, last, value);
  if (end.ec != std::errc{} || end.ptr != last || text.empty() || (std::is_floating_point_v<Number> && !hex))
    throw_failure(Kind::corrupt, "state of the loss scale: '{}' in '{}' is no number", printable(text), printable(whole));
  return value;
}

}  // namespace

std::string to_text(const ScaleState& s) {
  return fmt::format("scale={:a} good={} spare={} since={} bad={} skipped={}", s.scale, s.good, s.spare, s.since, s.bad, s.skipped);
}

ScaleState scale_state_of(std::string_view text) {
  constexpr std::array<std::string_view, 6> kNames{"scale", "good", "spare", "since", "bad", "skipped"};
  const auto parts = split(text, ' ');
  ScaleState s;
  const std::array<std::int64_t*, 6> whole{nullptr, &s.good, &s.spare, &s.since, &s.bad, &s.skipped};
  if (parts.size() != kNames.size()) throw_failure(Kind::corrupt, "state of the loss scale: '{}' is not one", printable(text));
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const std::size_t name = kNames[i].size();
    if (!parts[i].starts_with(kNames[i]) || parts[i].size() <= name || parts[i][name] != '=')
      throw_failure(Kind::corrupt, "state of the loss scale: '{}' where {}=.. should be", printable(parts[i]), kNames[i]);
    const std::string_view value = parts[i].substr(name + 1);
    if (whole[i] != nullptr)
      *whole[i] = read_value<std::int64_t>(value, text);
    else
      s.scale = read_value<double>(value, text);
  }
  if (!(s.scale >= kLeastScale && s.scale <= kMostScale) || s.skipped < 0)
    throw_failure(Kind::corrupt, "state of the loss scale: '{}' cannot be", printable(text));
  return s;
}

LossScale LossScale::parse(std::string_view text) {
  const Spec spec = Spec::parse(text);
  refuse_removed(spec.name);
  LossScale made;
  made.rule_ = &find_row(scale_rules(), spec.name, "loss scale");
  const ScaleRule& rule = *made.rule_;
  const SpecSchema schema = scale_schema(rule);
  const SpecValues values = schema.read(spec);
  const auto read = [&](std::string_view name, double otherwise) { return real_or(schema, values, name, otherwise); };
  made.up_ = read("up", 1);
  made.down_ = read("down", 1);
  made.window_ = static_cast<std::int64_t>(read("window", 0));
  made.hysteresis_ = static_cast<std::int64_t>(read("hysteresis", 1));
  made.min_ = read("min", 0);
  made.consecutive_ = rule.hysteresis > 0 && values.boolean("consecutive_hysteresis");
  made.spec_ = spelled_out(schema, spec);
  made.state_ = made.fresh(read("init", 1));
  if (made.state_.scale < made.min_)
    throw_failure(Kind::usage, "loss scale '{}': it starts at {}, below its smallest, {}", text, made.state_.scale, made.min_);
  return made;
}

std::vector<SpecSchema> LossScale::schemas() {
  std::vector<SpecSchema> all;
  for (const ScaleRule* rule : scale_rules()) all.push_back(scale_schema(*rule));
  return all;
}

bool LossScale::scales() const { return rule_->name != "none"; }

ScaleState LossScale::fresh(double scale) const { return {.scale = scale, .good = rule_->late ? -1 : 0, .spare = hysteresis_}; }

void LossScale::update(bool overflow) {
  const ScaleState before = state_;
  ++state_.since;
  if (overflow) {
    ++state_.bad;
    ++state_.skipped;
    state_.good = rule_->late ? -1 : 0;
    try {
      if (window_ > 0 && falls_now()) fall();
    } catch (...) {
      state_ = before;
      throw;
    }
    return;
  }
  if (consecutive_) state_.spare = hysteresis_;
  if (window_ > 0 && ++state_.good == window_) grow();
}

bool LossScale::falls_now() {
  state_.spare = std::max<std::int64_t>(0, state_.spare - 1);
  return state_.spare == 0;
}

void LossScale::fall() {
  if (state_.scale <= min_)
    throw_failure(Kind::corrupt,
                  "the loss scale cannot fall below {} (now {}, rule {}): gradients overflow at any scale; lower the learning rate, clip "
                  "gradients (engine.clip_norm), or compute in bf16",
                  min_, state_.scale, spec_);
  state_.scale = std::max({state_.scale * down_, min_, kLeastScale});
  state_.since = state_.bad = 0;
}

void LossScale::grow() {
  const double higher = state_.scale * up_;
  if (higher <= kMostScale) state_.scale = higher;
  state_.good = 0;
  state_.spare = hysteresis_;
  state_.since = 0;
}

void LossScale::restore(const ScaleState& state, std::string_view saved_by) {
  if (saved_by == spec_) {
    state_ = state;
    return;
  }
  double scale = state_.scale;
  if (window_ > 0 && saved_by != "none") scale = std::max(state.scale, min_);
  state_ = fresh(scale);
  state_.skipped = state.skipped;
}

}  // namespace cohort::optim
