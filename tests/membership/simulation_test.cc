// Thousands of schedules, each from its seed alone. A failure prints the seed and how to see its trace:
//   COHORT_SIM_SEED=123 bin/membership_test --gtest_filter=Simulation.ReplaysOneSeed
#include "simulation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace cohort::membership {
namespace {

// The seed also determines the rules of the job, so that one number is a whole schedule.
Scenario scenario_of(std::uint64_t seed) {
  Rng rng(seed, 1);
  Scenario s;
  s.seed = seed;
  s.workers = static_cast<int>(rng.between(1, 6));
  s.hosts = static_cast<int>(rng.between(2, 4));
  s.launcher_sees_exits = rng.uniform() < 0.7;
  s.faults_every = rng.uniform(0.3, 3);
  auto& r = s.rules;
  r.job = "sim";
  r.target_workers = s.workers;
  r.min_workers = static_cast<int>(rng.between(1, s.workers));
  r.max_workers = s.workers + static_cast<int>(rng.between(0, 2));
  r.respawns = static_cast<int>(rng.between(0, 12));
  r.quorum = rng.uniform() < 0.2 ? elastic::Quorum::majority : elastic::Quorum::minimum;
  r.start_grace = 3;
  r.report_limit = 2;
  r.settle_limit = 6;
  r.state_timeout = 20;
  r.cool_down = 1;
  r.wait_limit = 100;
  return s;
}

std::string replay_hint(std::uint64_t seed) {
  return fmt::format("COHORT_SIM_SEED={} bin/membership_test --gtest_filter=Simulation.ReplaysOneSeed", seed);
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

TEST(Simulation, EverySchedulesHistoryKeepsThePromises) {
  const std::uint64_t first = from_environment("COHORT_SIM_FIRST", 1), count = from_environment("COHORT_SIM_COUNT", 1000);
  int faults = 0, epochs = 0, from_disk = 0, failed = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Outcome outcome = Simulation(scenario_of(seed)).run();
    faults += outcome.faults;
    epochs += outcome.epochs;
    from_disk += outcome.restarts_from_disk;
    if (outcome.failure.empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": " << outcome.failure << "\n  " << replay_hint(seed);
    if (++failed == 10) break;
  }
  std::printf("%d faults, %d epochs, %d restarts from disk in %d schedules\n", faults, epochs, from_disk, static_cast<int>(count));
}

// What they found is described in docs/reliability.md, and tested event by event in membership_*_test.cc: a change of the simulator gives a
// seed another trace.
TEST(Simulation, SchedulesThatBrokeAPromiseOnceKeepAll) {
  for (const std::uint64_t seed : {5, 22, 1461, 2386, 2557, 3915, 23101, 46066, 53695, 92283, 93347, 140507, 144459})
    EXPECT_EQ(Simulation(scenario_of(seed)).run().failure, "") << replay_hint(seed);
}

TEST(Simulation, ReplaysOneSeed) {
  const std::uint64_t seed = from_environment("COHORT_SIM_SEED", 1);
  Scenario scenario = scenario_of(seed);
  scenario.trace = std::getenv("COHORT_SIM_SEED") != nullptr;
  const Outcome first = Simulation(scenario).run();
  scenario.trace = false;
  const Outcome again = Simulation(scenario).run();
  EXPECT_EQ(first.failure, "") << replay_hint(seed);
  EXPECT_EQ(first.events, again.events) << "a schedule must follow from its seed alone";
  EXPECT_EQ(first.ended_at, again.ended_at);
}

}  // namespace cohort::membership
