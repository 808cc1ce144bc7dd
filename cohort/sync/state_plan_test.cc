#include "cohort/sync/state_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::sync {
namespace {

using testing::ElementsAre;

TEST(StatePlan, TensorsOfARankFollowEachOtherOnLinesOfTheCache) {
  const optim::StateSpec row{"row_var", {10, 1}}, column{"col_var", {1, 40}}, wide{"sum", {9}, Dtype::f64};
  const StatePlan plan = plan_state({{row, column}, {wide}, {}, {row}}, {1, 0, 1, 1}, 3);
  EXPECT_THAT(plan.places, ElementsAre(ElementsAre(0, 64), ElementsAre(0), ElementsAre(), ElementsAre(64 + 192)));
  EXPECT_THAT(plan.bytes, ElementsAre(128, 64 + 192 + 64, 0));
}

}  // namespace
}  // namespace cohort::sync
