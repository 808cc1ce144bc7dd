#include "cohort/nn/unshard/block_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::nn {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> after(BlockOrder& order, const std::string& block, std::size_t ahead = 1) {
  const auto next = order.next(block, ahead);
  return {next.begin(), next.end()};
}

void train(BlockOrder& order) {
  for (const char* block : {"a", "b"}) {
    order.begins_pass(block, true);
    order.next(block, 1);
  }
  order.went_back();
  for (const char* block : {"b", "a"}) order.next(block, 1);
}

TEST(BlockOrder, PredictsFromTheSecondPassOn) {
  BlockOrder order;
  train(order);
  EXPECT_TRUE(order.begins_pass("a", true));
  EXPECT_THAT(after(order, "a"), ElementsAre("b"));
  EXPECT_FALSE(order.begins_pass("b", true));
  EXPECT_THAT(after(order, "b", 9), ElementsAre("b", "a"));
  order.went_back();
  EXPECT_THAT(after(order, "b"), ElementsAre("a"));
  EXPECT_THAT(after(order, "a"), IsEmpty());
}

TEST(BlockOrder, EvaluationHasAnOrderOfItsOwn) {
  BlockOrder order;
  train(order);
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_TRUE(order.begins_pass("a", false));
    EXPECT_EQ(after(order, "a").size(), pass == 0 ? 0U : 1U);
    EXPECT_FALSE(order.begins_pass("b", false));
    EXPECT_THAT(after(order, "b"), IsEmpty()) << "no backward follows";
  }
  EXPECT_TRUE(order.begins_pass("a", true));
  EXPECT_THAT(after(order, "a", 3), ElementsAre("b", "b", "a"));
}

TEST(BlockOrder, APassInAnotherOrderGetsNoPrediction) {
  BlockOrder order;
  train(order);
  order.begins_pass("c", true);
  for (const char* block : {"c", "b"}) EXPECT_THAT(after(order, block), IsEmpty());
  order.went_back();
  EXPECT_TRUE(order.begins_pass("c", true));
  EXPECT_THAT(after(order, "c"), ElementsAre("b"));
}

}  // namespace
}  // namespace cohort::nn
