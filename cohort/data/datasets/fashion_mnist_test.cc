#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "cohort/base/failure_of.h"
#include "cohort/data/dataset.h"

namespace cohort::data {

TEST(FashionMnist, HasTenClassesOfAThousandTestImages) {
  const auto set = open_dataset("fashion_mnist(split=test)");
  ASSERT_EQ(set->size(), 10000);
  EXPECT_THAT(set->form().shape, testing::ElementsAre(1, 28, 28));
  std::array<int, 10> counts{};
  Scratch scratch;
  for (std::int64_t i = 0; i < set->size(); ++i) ++counts.at(static_cast<std::size_t>(set->sample(i, scratch).label));
  for (const int count : counts) EXPECT_EQ(count, 1000);
}

TEST(FashionMnist, SaysWhichPackageBringsIt) {
  EXPECT_THAT(failure_of([] { open_dataset("fashion_mnist(dir=/nowhere)"); }).what,
              testing::HasSubstr("apt-get install dataset-fashion-mnist"));
}

}  // namespace cohort::data
