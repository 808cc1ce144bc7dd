#include "cohort/engine/update.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

namespace cohort::engine {
namespace {

struct Runs {
  explicit Runs(std::size_t count, std::size_t states) : all(2 + states, std::vector<float>(count)) {
    for (std::size_t r = 0; r < all.size(); ++r)
      for (std::size_t i = 0; i < count; ++i) all[r][i] = std::abs(std::sin(static_cast<float>(i + 7 * r)));
  }
  optim::Slice slice(std::vector<void*>& state) {
    for (std::size_t r = 2; r < all.size(); ++r) state.push_back(all[r].data());
    return {.param = all[0].data(), .grad = all[1].data(), .state = state, .count = all[0].size(), .weight_decay = 0.1};
  }
  std::vector<std::vector<float>> all;
};

TEST(UpdateByAll, GivesTheBitsOfOneThreadForEveryRuleAndSize) {
  const int before = at::get_num_threads();
  for (const char* spec : {"sgd(lr=0.1)", "sgd(lr=0.1, momentum=0.9, nesterov=true)", "adam(lr=0.1)", "adamw(lr=0.1)", "rmsprop(lr=0.1)",
                           "adagrad(lr=0.1)", "lars(lr=0.1)", "lamb(lr=0.1)"}) {
    const auto rule = optim::make(spec);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{65537}, std::size_t{200003}}) {
      Runs alone(count, rule->state_names().size()), together = alone;
      std::vector<void*> mine, theirs;
      const optim::StepInfo step{.step = 3, .lr = 0.1, .grad_scale = 0.5, .clear_grad = true};
      const std::vector<double> sums(rule->needs().sums(), 2.0);
      auto one = alone.slice(mine), many = together.slice(theirs);
      one.sums = many.sums = sums;
      rule->update(one, step);
      at::set_num_threads(3);
      update_by_all(*rule, many, step);
      at::set_num_threads(before);
      EXPECT_EQ(alone.all, together.all) << spec << ", " << count << " elements";
    }
  }
}

TEST(UpdateByAll, GivesTheBitsOfOneThreadForRulesOfWholeTensors) {
  const int before = at::get_num_threads();
  const Shape shape{130, 210};
  for (const char* spec : {"adafactor", "muon"}) {
    const auto rule = optim::make(spec);
    const std::size_t count = optim::count_of(shape), states = rule->state({"m", shape}).size();
    Runs alone(count, states), together = alone;
    std::vector<void*> mine, theirs;
    const optim::StepInfo step{.step = 3, .lr = 0.1, .grad_scale = 0.5, .clear_grad = true};
    auto one = alone.slice(mine), many = together.slice(theirs);
    one.shape = many.shape = shape;
    rule->update(one, step);
    at::set_num_threads(3);
    update_by_all(*rule, many, step);
    at::set_num_threads(before);
    EXPECT_EQ(alone.all, together.all) << spec;
  }
}

}  // namespace
}  // namespace cohort::engine
