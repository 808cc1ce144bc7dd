// For tests of rules that update whole tensors: small tensors of fixed numbers, the same as in the programs that gave torch's figures.
//   w[i] = ((7 i + 3) mod 11 - 5) / 8,   at step t   g[i] = ((5 i + 3 t) mod 13 - 6) / 16
#pragma once
#include "cohort/optim/testing.h"

namespace cohort::optim {

inline Field<double> five_steps(const std::string& spec, const cohort::Shape& shape, double lr, double decay,
                                const Algebra* algebra = nullptr) {
  const auto rule = make(spec);
  Field<double> field(*rule, TensorInfo{"m", shape, Dtype::f64});
  for (std::size_t i = 0; i < field.w.size(); ++i) field.w[i] = (static_cast<double>((7 * i + 3) % 11) - 5) / 8;
  for (std::size_t t = 1; t <= 5; ++t) {
    for (std::size_t i = 0; i < field.g.size(); ++i) field.g[i] = (static_cast<double>((5 * i + 3 * t) % 13) - 6) / 16;
    field.update(*rule, {.step = static_cast<std::int64_t>(t), .lr = lr, .algebra = algebra}, {.weight_decay = decay});
  }
  return field;
}

inline void expect_near(const std::vector<double>& found, const std::vector<double>& wanted, double tolerance = 1e-13) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], tolerance) << i;
}

}  // namespace cohort::optim
