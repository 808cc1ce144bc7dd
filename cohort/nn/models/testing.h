// For tests: what every model of the zoo must do. Each function builds its model; large models pass small images.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cohort/nn/loss.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {

inline constexpr std::uint64_t kTestSeed = 7;

inline Loss loss_on(const Model& model, const at::Tensor& x) {
  const at::Tensor logits = model.forward(x);
  std::vector<std::int64_t> sizes(logits.sizes().begin(), logits.sizes().end() - 1);
  at::Tensor labels = x.scalar_type() == at::kLong && logits.dim() == 3 ? x.roll(-1, 1) : at::zeros(sizes, at::kLong);
  return loss_of(logits, labels, {.reduction = Reduction::mean});
}

// Every parameter gets a finite gradient that is not all zero, and a small step against it lowers the loss on the same batch.
inline void expect_learns(const Model& model, const at::Tensor& x, double rate) {
  const Loss before = loss_on(model, x);
  before.value.backward();
  {
    const c10::AutoGradMode no_grad(false);
    for (const auto& [name, parameter] : model.named_parameters()) {
      ASSERT_TRUE(parameter.grad().defined()) << name;
      const double size = parameter.grad().abs().max().item<double>();  // NaN and infinity survive max
      EXPECT_GT(size, 0) << name;
      EXPECT_LT(size, 1e6) << name;
      parameter.sub_(parameter.grad(), rate);
    }
    EXPECT_LT(loss_on(model, x).value.item<double>(), before.value.item<double>());
  }
}

inline void expect_learns(const std::string& spec, std::int64_t n, double rate) {
  const Model model = make_model(spec, kTestSeed);
  expect_learns(model, model.example(n), rate);
}

// The same seed gives the same bits, another seed others.
inline void expect_repeats(const std::string& spec) {
  const NamedTensors one = make_model(spec, kTestSeed).named_parameters();
  const NamedTensors two = make_model(spec, kTestSeed).named_parameters();
  const NamedTensors other = make_model(spec, kTestSeed + 1).named_parameters();
  ASSERT_EQ(one.size(), two.size());
  bool differs = false;
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].first, two[i].first);
    EXPECT_TRUE(at::equal(one[i].second, two[i].second)) << one[i].first;
    differs = differs || !at::equal(one[i].second, other[i].second);
  }
  EXPECT_TRUE(differs);
}

inline std::vector<std::int64_t> logits_of(const Model& model, std::int64_t n) {
  const c10::AutoGradMode no_grad(false);
  return model.forward(model.example(n)).sizes().vec();
}

inline std::vector<std::string> names_of(const NamedTensors& list) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : list) names.push_back(name);
  return names;
}

}  // namespace cohort::nn
