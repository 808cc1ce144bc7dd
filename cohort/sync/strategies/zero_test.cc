#include "cohort/base/failure_of.h"
#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

TEST(Zero, HoldsLessTheHigherTheStage) {
  const auto at = [](int stage) { return make("zero(stage=" + std::to_string(stage) + ")")->placement(Rank{1}, 4); };
  for (int stage = 1; stage <= 3; ++stage) {
    EXPECT_TRUE(at(stage).sharded());
    EXPECT_EQ(at(stage).gathers_gradients(), stage >= 2);
    EXPECT_EQ(at(stage).gathers_parameters(), stage >= 3);
    EXPECT_EQ(at(stage).previous_rank(), 0);
  }
  EXPECT_FALSE(at(3).without_gathered_parameters().gathers_parameters());
}

TEST(Zero, OffloadSaysWhereRolesLie) {
  const auto host = make("zero(stage=2, offload=host)")->placement(Rank{0}, 2);
  EXPECT_TRUE(host.copies_to_device());
  const auto file = make("zero(stage=3, offload=\"file:/x\")")->placement(Rank{0}, 2);
  EXPECT_TRUE(file.state_on_disk() && file.master_on_disk());
  EXPECT_EQ(file.folder, "/x");
  EXPECT_FALSE(file.without_gathered_parameters().master_on_disk()) << "peers gather what is whole";
  EXPECT_THAT(failure_of([] { make("zero(stage=1, offload=host)"); }).what, testing::HasSubstr("stages 2 and 3"));
  EXPECT_THAT(failure_of([] { make("zero(offload=disk)"); }).what, testing::HasSubstr("file:FOLDER"));
}

TEST(Zero, EveryRankEndsWithTheParametersOfAllReduce) {
  const Quadratic q{.sync = "all_reduce", .ranks = 3, .steps = 5, .rate = 0.1, .rule = "adam(lr=0.1)"};
  Quadratic sharded = q;
  sharded.sync = "zero(stage=1)";
  EXPECT_EQ(train(sharded).models, train(q).models);
}

}  // namespace
}  // namespace cohort::sync
