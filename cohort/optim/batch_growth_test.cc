#include "cohort/optim/batch_growth.h"

#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/optim/schedule.h"

namespace cohort::optim {
namespace {

// The paper's: the rate falls by 5 three times; the batch grows by 5 instead, here twice, then the rate has to fall.
TEST(BatchGrowth, MultipliesTheBatchWhereTheScheduleDividesTheRate) {
  const Schedule schedule = Schedule::parse("multi_step(milestones=\"60, 120, 160\", gamma=0.2)");
  const auto at = [&](std::int64_t step) { return grow_batch(schedule.lr(step, 200, 0.1), 0.1, 128, 3200); };
  const std::int64_t batches[] = {128, 640, 3200, 3200};
  const double rates[] = {0.1, 0.1, 0.1, 0.02};
  const std::int64_t steps[] = {59, 60, 159, 160};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(at(steps[i]).batch, batches[i]) << i;
    EXPECT_NEAR(at(steps[i]).rate, rates[i], 1e-12) << i;
  }
}

TEST(BatchGrowth, KeepsTheNoiseOfTheScheduleAtEveryStep) {
  for (const char* spec : {"cosine(min=0.001)", "step(size=10, gamma=0.7)", "polynomial(power=2, end=1e-5)"}) {
    const Schedule schedule = Schedule::parse(spec);
    for (std::int64_t step = 0; step < 100; ++step) {
      const double rate = schedule.lr(step, 100, 0.3);
      const GrownBatch now = grow_batch(rate, 0.3, 64, 4096);
      EXPECT_NEAR(sgd_noise(now.rate, 50000, static_cast<double>(now.batch), 0.9) / sgd_noise(rate, 50000, 64, 0.9), 1, 1e-12) << step;
      EXPECT_LE(now.rate, 0.3 * (1 + 0.5 / 64));
      EXPECT_GE(now.batch, 64);
      EXPECT_LE(now.batch, 4096);
    }
  }
}

TEST(BatchGrowth, TakesTheEndsAndRefusesNonsense) {
  EXPECT_EQ(grow_batch(0, 0.1, 32, 512).batch, 512);
  EXPECT_EQ(grow_batch(0, 0.1, 32, 512).rate, 0);
  EXPECT_EQ(grow_batch(0.1, 0.1, 32, 32).batch, 32);
  EXPECT_EQ(failure_of([] { (void)grow_batch(0.1, 0, 32, 64); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([] { (void)grow_batch(0.1, 0.1, 64, 32); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::optim
