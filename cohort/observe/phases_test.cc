#include "cohort/observe/phases.h"

#include <gmock/gmock.h>

namespace cohort::observe {
namespace {

using testing::ElementsAre;

std::int64_t virtual_now = 0;
std::int64_t read_virtual() { return virtual_now; }
void pass(double seconds) { virtual_now += static_cast<std::int64_t>(seconds * 1e9); }

TEST(Phases, AnInnerPhaseTakesItsTimeFromTheOuterOne) {
  PhaseClock clock(read_virtual);
  pass(1);
  {
    const auto compute = clock.in(Phase::compute);
    pass(2);
    {
      const auto wait = clock.in(Phase::wait);
      pass(3);
      const auto talk = clock.in(Phase::communicate);
      pass(4);
    }
    pass(5);
  }
  pass(6);
  EXPECT_THAT(clock.end_step().seconds, ElementsAre(7, 4, 3, 7));
}

TEST(Phases, EveryMomentBelongsToOneStepAndOnePhase) {
  PhaseClock clock(read_virtual);
  const auto compute = clock.in(Phase::compute);
  pass(1);
  EXPECT_EQ(clock.end_step()[Phase::compute], 1) << "a step may end inside a phase";
  pass(2);
  EXPECT_EQ(clock.end_step()[Phase::compute], 2);
  EXPECT_EQ(clock.total()[Phase::compute], 3);
  EXPECT_EQ(clock.total().sum(), 3);
  EXPECT_EQ(clock.steps(), 2U);
}

TEST(Phases, SharesAddUpToOneAndNothingHasNone) {
  PhaseSeconds a{{1, 2, 0, 0}};
  a += PhaseSeconds{{1, 0, 4, 0}};
  EXPECT_THAT(a.shares(), ElementsAre(0.25, 0.25, 0.5, 0));
  EXPECT_THAT(PhaseSeconds{}.shares(), ElementsAre(0, 0, 0, 0));
}

TEST(Phases, AChangeOfPhaseIsCheap) {
  constexpr int kChanges = 100'000;
  PhaseClock clock;
  for (int i = 0; i < kChanges; ++i) const auto in = clock.in(Phase::compute);
  const double each = clock.end_step().sum() / (2 * kChanges);
  RecordProperty("nanoseconds_per_change", std::to_string(each * 1e9));
  EXPECT_LT(each, 5e-6) << "tens of nanoseconds on an idle machine";
}

}  // namespace
}  // namespace cohort::observe
