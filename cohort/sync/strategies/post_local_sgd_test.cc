#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

TEST(PostLocalSgd, IsAllReduceUntilItsStartAndLocalSgdFromThere) {
  Quadratic q{.sync = "post_local_sgd(h=2, start=3)", .ranks = 3, .steps = 7, .rate = 0.1, .rule = "sgd(lr=0.1, momentum=0.9)"};
  const QuadraticRun found = train(q);
  q.sync = "all_reduce";
  const QuadraticRun together = train(q);
  for (std::size_t step = 0; step < 3; ++step) EXPECT_EQ(found.after[1][step], together.after[1][step]);
  EXPECT_NE(found.after[0][3], found.after[1][3]) << "by itself";
  EXPECT_EQ(found.after[0][4], found.after[1][4]) << "a round of two";
}

TEST(PostLocalSgd, SaysWhoCommitsAStep) {
  const auto strategy = make("post_local_sgd(h=4, start=10)");
  EXPECT_EQ(strategy->schedule(10).commit, Scope::world);
  EXPECT_EQ(strategy->schedule(11).commit, Scope::self);
  EXPECT_FALSE(strategy->schedule(13).ends_round);
  EXPECT_TRUE(strategy->schedule(14).ends_round);
}

}  // namespace
}  // namespace cohort::sync
