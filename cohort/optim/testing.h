// For tests: parameters, gradients and states of one rule in ordinary vectors, and the comparison of a rule with its formula.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <utility>

#include "cohort/optim/exact_sum.h"
#include "cohort/optim/optimizer.h"

namespace cohort::optim {

template <class T>
constexpr Dtype kReal = sizeof(T) == 4 ? Dtype::f32 : Dtype::f64;

template <class T>
struct Field {
  std::vector<T> w, g;
  std::vector<std::vector<T>> s;
  std::vector<double> sums;  // that the rule needs of the whole, as they were before the step
  TensorInfo info;
  cohort::Shape part_shape;  // of what slice() gave last

  Field(const Optimizer& rule, std::size_t count, T start = 0) : Field(rule, {"", {static_cast<std::int64_t>(count)}, kReal<T>}, start) {}
  Field(const Optimizer& rule, TensorInfo tensor, T start = 0) : w(tensor.numel(), start), g(w.size()), info(std::move(tensor)) {
    for (const StateSpec& spec : rule.state(info)) s.emplace_back(count_of(spec.shape), static_cast<T>(spec.initial));
  }
  // Updates elements [from, to).
  void update(const Optimizer& rule, const StepInfo& step, std::size_t from, std::size_t to, Slice group = {}) {
    std::vector<void*> states;
    group = slice(from, to, group, states);
    if (rule.needs().grain == Grain::tensor && group.count < w.size()) {  // is a tensor of its own
      part_shape = {static_cast<std::int64_t>(group.count)};
      group.shape = part_shape;
      group.first = 0;
    }
    if (from == 0 || sums.empty()) measure(rule, step, group);
    group.sums = sums;
    rule.update(group, step);
  }
  // All rounds, in parts: cuts, ascending, are whole blocks behind the first element.
  void measure(const Optimizer& rule, const StepInfo& step, const Slice& group = {}, std::vector<std::size_t> cuts = {}) {
    const auto each = static_cast<std::size_t>(rule.needs().per_tensor);
    cuts.push_back(w.size());
    sums.clear();
    for (int round = 0; round < rule.needs().rounds; ++round) {
      std::vector<ExactSum> exact(each);
      std::size_t from = 0;
      for (const std::size_t to : cuts) {
        std::vector<void*> states;
        Slice part = slice(std::exchange(from, to), to, group, states);
        part.sums = sums;
        rule.measure(round, part, step, exact);
      }
      for (const ExactSum& sum : exact) sums.push_back(sum.value());
    }
  }
  Slice slice(std::size_t from, std::size_t to, Slice group, std::vector<void*>& states) {
    states.clear();
    for (auto& run : s) states.push_back(run.data() + from);
    group.param = w.data() + from;
    group.grad = g.data() + from;
    group.state = states;
    group.count = to - from;
    group.dtype = kReal<T>;
    group.name = info.name;
    group.shape = info.shape;
    group.first = from;
    return group;
  }
  void update(const Optimizer& rule, const StepInfo& step, Slice group = {}) { update(rule, step, 0, w.size(), group); }

  bool same_bits(const Field& other) const {
    bool same = std::memcmp(w.data(), other.w.data(), w.size() * sizeof(T)) == 0;
    for (std::size_t k = 0; k < s.size(); ++k) same = same && std::memcmp(s[k].data(), other.s[k].data(), s[k].size() * sizeof(T)) == 0;
    return same;
  }
};

template <class T>
void fill_normal(std::vector<T>& values, std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::generate(values.begin(), values.end(), [&] { return static_cast<T>(normal(random)); });
}

inline double norm(const std::vector<double>& values) {
  double squared = 0;
  for (const double x : values) squared += x * x;
  return std::sqrt(squared);
}

// One element by the formula, in double: w, gradient (scaled), states, step from 1, learning rate, weight decay.
using Formula = std::function<void(double& w, double g, std::vector<double>& s, double t, double lr, double decay)>;

// The worst |w - formula| / max(1, |formula|) over 50 steps of noise. Odd count, a group's own scale and decay, a changing rate.
template <class T>
double worst_error(const std::string& spec, const Formula& formula) {
  constexpr std::size_t kCount = 203;
  const auto rule = make(spec);
  Field<T> field(*rule, kCount);
  std::mt19937 random(7);
  fill_normal(field.w, random);
  std::vector<double> w(field.w.begin(), field.w.end());
  std::vector<std::vector<double>> s(kCount);
  for (auto& states : s)
    for (std::size_t k = 0; k < field.s.size(); ++k) states.push_back(rule->initial_state(k));
  const Slice group{.lr_scale = 0.5, .weight_decay = rule->default_weight_decay()};
  double worst = 0;
  for (std::int64_t step = 1; step <= 50; ++step) {
    fill_normal(field.g, random);
    const StepInfo info{.step = step, .lr = rule->default_lr() / static_cast<double>(step), .grad_scale = 0.25};
    for (std::size_t i = 0; i < kCount; ++i)
      formula(w[i], 0.25 * static_cast<double>(field.g[i]), s[i], static_cast<double>(step), info.lr * group.lr_scale, group.weight_decay);
    field.update(*rule, info, group);
    for (std::size_t i = 0; i < kCount; ++i)
      worst = std::max(worst, std::abs(static_cast<double>(field.w[i]) - w[i]) / std::max(1.0, std::abs(w[i])));
  }
  return worst;
}

inline void expect_formula(const std::string& spec, const Formula& formula) {
  EXPECT_LT(worst_error<float>(spec, formula), 1e-6) << spec;
  EXPECT_LT(worst_error<double>(spec, formula), 1e-14) << spec;
}

}  // namespace cohort::optim
