#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cohort/data/loader.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kLarge = (std::int64_t{1} << 53) + 1;  // no float holds it

// Three samples of 2 tokens of any vocabulary, with 3 labels each.
class WideSet final : public Dataset {
 public:
  WideSet() : Dataset({.input = Input::tokens, .shape = {2}, .vocabulary = 1, .wide = true, .ids = 3}, 3) {}
  Sample sample(std::int64_t index, Scratch& scratch) const override {
    const std::int64_t all[] = {index, kLarge + index, -100, index, kLarge};
    scratch.resize(sizeof all);
    std::memcpy(scratch.data(), all, sizeof all);
    return {.input = scratch.data(), .ids = reinterpret_cast<const std::int64_t*>(scratch.data()) + 2};
  }
  std::string where(std::int64_t) const override { return "wide"; }
};

}  // namespace

TEST(WideTokens, AndIdsArriveInABatchAsTheyAre) {
  const auto set = std::make_shared<WideSet>();
  EXPECT_EQ(set->form().bytes(), 16);
  EXPECT_EQ(set->form().labels(), 3);
  Loader loader(set, {.share = {.batch = 3, .sampler = "in_order"}, .threads = 0});
  const Batch batch = loader.next(Deadline::in(20s));
  EXPECT_THAT(std::span(batch.tokens(), 6), ElementsAre(0, kLarge, 1, kLarge + 1, 2, kLarge + 2));
  EXPECT_THAT(std::span(batch.labels(), 9), ElementsAre(-100, 0, kLarge, -100, 1, kLarge, -100, 2, kLarge));
}

}  // namespace cohort::data
