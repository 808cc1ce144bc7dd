#include "cohort/plan/choices.h"

#include <gmock/gmock.h>

#include "cohort/plan/report.h"

namespace cohort::plan {
namespace {

using testing::HasSubstr;

// Two blocks of 1000 parameters; backward takes twice as long as forward and comes to the last block first.
PlanInput two_blocks(int ranks) {
  ModelProfile profile;
  profile.parameters = {{.name = "a", .elements = 1000, .bytes = 4000, .block = 0, .arrives = 0.4},
                        {.name = "b", .elements = 1000, .bytes = 4000, .block = 1, .arrives = 0.2}};
  profile.blocks = {{.name = "first", .forward = 0.1, .bytes = 4000}, {.name = "second", .forward = 0.1, .bytes = 4000}};
  profile.forward = 0.2;
  profile.backward = 0.4;
  profile.kept = 10'000;
  profile.peak = 12'000;
  PlanInput plan_input{.model = "two", .batch = 8, .profiles = {profile}, .buckets = {{1}, {0}}, .measure = 0.01, .update = 0.03};
  plan_input.links = {.ranks = ranks, .cores = ranks, .link_speed = LinkSpeed{.rate = 4000, .latency = 0}};
  return plan_input;
}

TEST(Choices, MemoryFollowsTheStage) {
  const PlanInput plan_input = two_blocks(4);
  const Choice zero = choice(plan_input, 0, plan_input.profiles[0]), three = choice(plan_input, 3, plan_input.profiles[0]);
  EXPECT_DOUBLE_EQ(zero.at(MemoryClass::parameters), 8000);
  EXPECT_DOUBLE_EQ(zero.at(MemoryClass::optimizer), 16000);
  EXPECT_DOUBLE_EQ(zero.at(MemoryClass::activations), 10'000);
  EXPECT_DOUBLE_EQ(zero.at(MemoryClass::temporaries), 2000);
  EXPECT_DOUBLE_EQ(zero.at(MemoryClass::buckets), 0);
  EXPECT_DOUBLE_EQ(three.at(MemoryClass::parameters), 2000);
  EXPECT_GT(three.at(MemoryClass::buckets), 0);
  EXPECT_DOUBLE_EQ(zero.total(), 8000 + 8000 + 16000 + 12'000);
}

TEST(Choices, InFlightAreABucketOfEachLaneAndTheNextOneAtLeastTwo) {
  const std::vector<double> bytes{1, 10, 10, 2, 9};
  EXPECT_DOUBLE_EQ(most_in_flight(bytes, 0), 20);
  EXPECT_DOUBLE_EQ(most_in_flight(bytes, 1), 20);
  EXPECT_DOUBLE_EQ(most_in_flight(bytes, 2), 22);
  EXPECT_DOUBLE_EQ(most_in_flight(bytes, 9), 32);
  EXPECT_DOUBLE_EQ(most_in_flight(std::vector<double>{7}, 0), 7);
  EXPECT_DOUBLE_EQ(most_in_flight({}, 0), 0);
  const PlanInput plan_input = two_blocks(4);
  EXPECT_DOUBLE_EQ(choice(plan_input, 2, plan_input.profiles[0]).at(MemoryClass::buckets), 8000);
}

TEST(Choices, OneRankComputesAndCommunicatesNothing) {
  const PlanInput plan_input = two_blocks(1);
  ASSERT_EQ(choices(plan_input).size(), 1U);
  const Choice c = choices(plan_input)[0];
  EXPECT_DOUBLE_EQ(c.step(), 0.2 + 0.4 + 0.04);
  EXPECT_DOUBLE_EQ(c.exposed + c.hidden, 0);
}

TEST(Choices, WithoutALaneAllOfTheCommunicationIsExposed) {
  const PlanInput plan_input = two_blocks(2);  // a bucket: 2 * 4000 / 2 bytes at 4000 a second
  const Choice c = choice(plan_input, 0, plan_input.profiles[0]);
  EXPECT_DOUBLE_EQ(c.exposed, 2.0 + plan_input.links.vote());
  EXPECT_DOUBLE_EQ(c.hidden, 0);
}

TEST(Choices, ALaneHidesWhatFitsBehindBackward) {
  PlanInput plan_input = two_blocks(2);
  plan_input.lanes = 1;
  plan_input.links.link_speed->rate = 40'000;  // 0.1 s a bucket: the first leaves at 0.2 and is there at 0.3, the second at 0.5 of 0.4
  const Choice c = choice(plan_input, 0, plan_input.profiles[0]);
  EXPECT_NEAR(c.hidden, 0.1, 1e-9);
  EXPECT_NEAR(c.exposed, 0.1 + plan_input.links.vote(), 1e-9);
}

TEST(Choices, ShardedUpdatesTakeTheirShareAndMoveAsMuch) {
  const PlanInput plan_input = two_blocks(2);
  const Choice zero = choice(plan_input, 0, plan_input.profiles[0]), one = choice(plan_input, 1, plan_input.profiles[0]),
               three = choice(plan_input, 3, plan_input.profiles[0]);
  EXPECT_NEAR(zero.compute - one.compute, 0.02, 1e-9);
  EXPECT_NEAR(one.exposed, zero.exposed, 1e-9);  // reduce-scatter and all-gather are the two halves of an all-reduce
  EXPECT_NEAR((three.exposed - plan_input.links.vote()) / (zero.exposed - plan_input.links.vote()), 1.5, 1e-9);
}

TEST(Choices, RanksThatShareACoreTakeTurns) {
  PlanInput plan_input = two_blocks(4);
  plan_input.links.link_speed.reset();
  plan_input.links.cores = 2;
  const double crowded = choice(plan_input, 0, plan_input.profiles[0]).compute;
  plan_input.links.cores = 4;
  EXPECT_NEAR(crowded / choice(plan_input, 0, plan_input.profiles[0]).compute, 2, 1e-9);
}

TEST(Choices, AccumulationRepeatsTheComputingNotTheUpdate) {
  PlanInput plan_input = two_blocks(1);
  plan_input.accumulate = 3;
  EXPECT_NEAR(choices(plan_input)[0].compute, 3 * 0.6 + 0.04, 1e-9);
}

TEST(Choices, TheVerdictNamesWhatFitsAndWhatIsFastest) {
  PlanInput plan_input = two_blocks(4);
  plan_input.memory = 40'000;
  const auto all = choices(plan_input);
  EXPECT_THAT(verdict(plan_input, all), HasSubstr("3 of 4 fit"));
  EXPECT_THAT(verdict(plan_input, all), HasSubstr("fastest: stage 1"));
}

TEST(Choices, WhenNothingFitsTheLastLineSaysWhatToTry) {
  PlanInput plan_input = two_blocks(4);
  plan_input.notes = {"the data is not here"};
  const auto all = choices(plan_input);
  const auto last_line = [&] {
    const std::string text = plan_text(plan_input, all);
    return text.substr(text.rfind('\n', text.size() - 2) + 1);
  };
  EXPECT_TRUE(anything_fits(plan_input, all)) << "no memory was given";
  plan_input.memory = 40'000;
  EXPECT_TRUE(anything_fits(plan_input, all));
  EXPECT_THAT(last_line(), HasSubstr("least memory"));
  plan_input.memory = 100;
  EXPECT_FALSE(anything_fits(plan_input, all));
  EXPECT_THAT(verdict(plan_input, all), HasSubstr("nothing fits 100 B"));
  EXPECT_THAT(last_line(), HasSubstr("try more ranks"));
  plan_input.memory = all[3].total() - 1000;
  EXPECT_FALSE(anything_fits(plan_input, all));
  EXPECT_THAT(last_line(), HasSubstr("try a smaller data.batch than 8"));
}

TEST(Choices, ATableHasALineForEveryChoiceAndJsonAnObject) {
  const PlanInput plan_input = two_blocks(2);
  const auto all = choices(plan_input);
  const std::string lines = plan_lines(plan_input, all), text = plan_text(plan_input, all);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4);
  EXPECT_THAT(text, HasSubstr("activations"));
  EXPECT_THAT(lines, HasSubstr("\"stage\":3"));
}

TEST(Choices, AForecastIsHeldAgainstWhatHappened) {
  const PlanInput plan_input = two_blocks(1);
  MeasuredStep measured_step{.seconds = 0.7, .quiet_seconds = 0.64};
  for (std::size_t i = 0; i < kMemoryClasses; ++i) measured_step.bytes[i] = choices(plan_input)[0].bytes[i];
  const Comparison found = compare(forecast_json(plan_input, choices(plan_input)[0]), measured_step);
  EXPECT_THAT(found.text, HasSubstr("memory of a rank"));
  EXPECT_THAT(found.json, HasSubstr("\"memory_ratio\": 1.0"));
}

TEST(Choices, BuddyCopiesTakeAShardMoreAndTheSecondUpdateOfIt) {
  PlanInput plan_input = two_blocks(4);
  const Choice alone = choice(plan_input, 1, plan_input.profiles[0]), alone3 = choice(plan_input, 3, plan_input.profiles[0]);
  plan_input.buddy = true;
  const Choice kept = choice(plan_input, 1, plan_input.profiles[0]), kept3 = choice(plan_input, 3, plan_input.profiles[0]);
  double elements = 0;
  for (const auto& p : plan_input.profiles[0].parameters) elements += static_cast<double>(p.elements);
  EXPECT_DOUBLE_EQ(kept.total() - alone.total(), 12 * elements / plan_input.links.ranks) << "two states of Adam and the gradients";
  EXPECT_DOUBLE_EQ(kept3.total() - alone3.total(), 16 * elements / plan_input.links.ranks) << "and the parameters";
  EXPECT_GT(kept.compute, alone.compute);
  EXPECT_GT(kept.exposed, alone.exposed);
  EXPECT_DOUBLE_EQ(choice(plan_input, 0, plan_input.profiles[0]).total(), 16 * elements + static_cast<double>(plan_input.profiles[0].peak))
      << "nothing to keep";
}

}  // namespace
}  // namespace cohort::plan
