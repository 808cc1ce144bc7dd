#include "cohort/data/class_names.h"

#include <gtest/gtest.h>

#include <vector>

namespace cohort::data {
namespace {

using Names = std::vector<std::string>;

std::string difference(const Names& a, const Names& b) { return difference_of_classes({a, "A"}, {b, "B"}); }

TEST(ClassNames, TheFirstLabelWithAnotherNameIsNamedWithBothSources) {
  EXPECT_EQ(difference({"ant", "cat", "dog"}, {"ant", "cow", "eel"}), "class 1 is 'cat' in A but 'cow' in B");
  EXPECT_EQ(difference({"ant", "cat"}, {"cat"}), "class 0 is 'ant' in A but 'cat' in B");
  EXPECT_EQ(difference({"ant"}, {"ant", "cat"}), "class 1 is 'cat' in B but missing in A");
}

TEST(ClassNames, AgreeWhenEveryLabelMeansTheSameOrOneSetKnowsNoNames) {
  EXPECT_EQ(difference({"ant", "cat"}, {"ant", "cat"}), "");
  EXPECT_EQ(difference({"ant", "cat"}, {"ant"}), "") << "without the last classes the labels are still the same";
  EXPECT_EQ(difference({}, {"ant"}), "");
  EXPECT_EQ(difference({"ant"}, {}), "");
}

}  // namespace
}  // namespace cohort::data
