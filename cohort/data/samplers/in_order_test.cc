#include <gtest/gtest.h>

#include "cohort/data/sampler.h"

namespace cohort::data {

TEST(InOrderSampler, NeverShuffles) {
  EXPECT_EQ(sampler_named("in_order").order(4, 1, 0), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(sampler_named("in_order").order(4, 9, 7), (std::vector<std::int64_t>{0, 1, 2, 3}));
}

}  // namespace cohort::data
