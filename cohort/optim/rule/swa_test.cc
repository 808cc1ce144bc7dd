#include <gmock/gmock.h>

#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

TEST(Swa, UpToItsStartTheAverageIsTheParameters) {
  const auto rule = make("swa(of=sgd, start=3)");
  Field<float> field(*rule, 40);
  std::mt19937 random(7);
  for (int t = 1; t <= 3; ++t) {
    fill_normal(field.g, random);
    field.update(*rule, {.step = t, .lr = 0.1});
    EXPECT_EQ(field.s.back(), field.w);
  }
  fill_normal(field.g, random);
  field.update(*rule, {.step = 4, .lr = 0.1});
  EXPECT_NE(field.s.back(), field.w);
}

}  // namespace
}  // namespace cohort::optim
