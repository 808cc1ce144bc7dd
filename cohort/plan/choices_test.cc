#include "cohort/plan/choices.h"

#include <gmock/gmock.h>

#include "cohort/plan/report.h"

namespace cohort::plan {
namespace {

using testing::HasSubstr;

// Two blocks of 1000 parameters; backward takes twice as long as forward and comes to the last block first.
Facts two_blocks(int ranks) {
  Walk walk;
  walk.parameters = {{.name = "a", .elements = 1000, .bytes = 4000, .block = 0, .arrives = 0.4},
                     {.name = "b", .elements = 1000, .bytes = 4000, .block = 1, .arrives = 0.2}};
  walk.blocks = {{.name = "first", .forward = 0.1, .bytes = 4000}, {.name = "second", .forward = 0.1, .bytes = 4000}};
  walk.forward = 0.2;
  walk.backward = 0.4;
  walk.kept = 10'000;
  walk.peak = 12'000;
  Facts facts{.model = "two", .batch = 8, .walks = {walk}, .buckets = {{1}, {0}}, .measure = 0.01, .update = 0.03};
  facts.links = {.ranks = ranks, .cores = ranks, .wire = Wire{.rate = 4000, .latency = 0}};
  return facts;
}

TEST(Choices, MemoryFollowsTheStage) {
  const Facts facts = two_blocks(4);
  const Choice zero = choice(facts, 0, facts.walks[0]), three = choice(facts, 3, facts.walks[0]);
  EXPECT_DOUBLE_EQ(zero.at(MemoryClass::parameters), 8000);
  EXPECT_DOUBLE_EQ(zero.at(MemoryClass::optimizer), 16000);
  EXPECT_DOUBLE_EQ(zero.at(MemoryClass::activations), 10'000);
  EXPECT_DOUBLE_EQ(zero.at(MemoryClass::temporaries), 2000);
  EXPECT_DOUBLE_EQ(zero.at(MemoryClass::buckets), 0);
  EXPECT_DOUBLE_EQ(three.at(MemoryClass::parameters), 2000);
  EXPECT_GT(three.at(MemoryClass::buckets), 0);
  EXPECT_DOUBLE_EQ(zero.total(), 8000 + 8000 + 16000 + 12'000);
}

TEST(Choices, OneRankComputesAndCommunicatesNothing) {
  const Facts facts = two_blocks(1);
  ASSERT_EQ(choices(facts).size(), 1U);
  const Choice c = choices(facts)[0];
  EXPECT_DOUBLE_EQ(c.step(), 0.2 + 0.4 + 0.04);
  EXPECT_DOUBLE_EQ(c.exposed + c.hidden, 0);
}

TEST(Choices, WithoutALaneAllOfTheCommunicationIsExposed) {
  const Facts facts = two_blocks(2);  // a bucket: 2 * 4000 / 2 bytes at 4000 a second
  const Choice c = choice(facts, 0, facts.walks[0]);
  EXPECT_DOUBLE_EQ(c.exposed, 2.0 + facts.links.vote());
  EXPECT_DOUBLE_EQ(c.hidden, 0);
}

TEST(Choices, ALaneHidesWhatFitsBehindBackward) {
  Facts facts = two_blocks(2);
  facts.lanes = 1;
  facts.links.wire->rate = 40'000;  // 0.1 s a bucket: the first leaves at 0.2 and is there at 0.3, the second at 0.5 of 0.4
  const Choice c = choice(facts, 0, facts.walks[0]);
  EXPECT_NEAR(c.hidden, 0.1, 1e-9);
  EXPECT_NEAR(c.exposed, 0.1 + facts.links.vote(), 1e-9);
}

TEST(Choices, ShardedUpdatesTakeTheirShareAndMoveAsMuch) {
  const Facts facts = two_blocks(2);
  const Choice zero = choice(facts, 0, facts.walks[0]), one = choice(facts, 1, facts.walks[0]), three = choice(facts, 3, facts.walks[0]);
  EXPECT_NEAR(zero.compute - one.compute, 0.02, 1e-9);
  EXPECT_NEAR(one.exposed, zero.exposed, 1e-9);  // reduce-scatter and all-gather are the two halves of an all-reduce
  EXPECT_NEAR((three.exposed - facts.links.vote()) / (zero.exposed - facts.links.vote()), 1.5, 1e-9);
}

TEST(Choices, RanksThatShareACoreTakeTurns) {
  Facts facts = two_blocks(4);
  facts.links.wire.reset();
  facts.links.cores = 2;
  const double crowded = choice(facts, 0, facts.walks[0]).compute;
  facts.links.cores = 4;
  EXPECT_NEAR(crowded / choice(facts, 0, facts.walks[0]).compute, 2, 1e-9);
}

TEST(Choices, AccumulationRepeatsTheComputingNotTheUpdate) {
  Facts facts = two_blocks(1);
  facts.accumulate = 3;
  EXPECT_NEAR(choices(facts)[0].compute, 3 * 0.6 + 0.04, 1e-9);
}

TEST(Choices, TheVerdictNamesWhatFitsAndWhatIsFastest) {
  Facts facts = two_blocks(4);
  facts.memory = 40'000;
  const auto all = choices(facts);
  EXPECT_THAT(verdict(facts, all), HasSubstr("3 of 4 fit"));
  EXPECT_THAT(verdict(facts, all), HasSubstr("fastest: stage 1"));
  facts.memory = 100;
  EXPECT_THAT(verdict(facts, all), HasSubstr("nothing fits 100 B"));
}

TEST(Choices, ATableHasALineForEveryChoiceAndJsonAnObject) {
  const Facts facts = two_blocks(2);
  const auto all = choices(facts);
  const std::string lines = plan_lines(facts, all), text = plan_text(facts, all);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4);
  EXPECT_THAT(text, HasSubstr("activations"));
  EXPECT_THAT(lines, HasSubstr("\"stage\":3"));
}

TEST(Choices, AForecastIsHeldAgainstWhatHappened) {
  const Facts facts = two_blocks(1);
  Happened happened{.seconds = 0.7, .quiet_seconds = 0.64};
  for (std::size_t i = 0; i < kMemoryClasses; ++i) happened.bytes[i] = choices(facts)[0].bytes[i];
  const Comparison found = compare(forecast_json(facts, choices(facts)[0]), happened);
  EXPECT_THAT(found.text, HasSubstr("memory of a rank"));
  EXPECT_THAT(found.json, HasSubstr("\"memory_ratio\": 1.0"));
}

TEST(Choices, BuddyCopiesTakeAShardMoreAndTheSecondUpdateOfIt) {
  Facts facts = two_blocks(4);
  const Choice alone = choice(facts, 1, facts.walks[0]), alone3 = choice(facts, 3, facts.walks[0]);
  facts.buddy = true;
  const Choice kept = choice(facts, 1, facts.walks[0]), kept3 = choice(facts, 3, facts.walks[0]);
  double elements = 0;
  for (const auto& p : facts.walks[0].parameters) elements += static_cast<double>(p.elements);
  EXPECT_DOUBLE_EQ(kept.total() - alone.total(), 12 * elements / facts.links.ranks) << "two states of Adam and the gradients";
  EXPECT_DOUBLE_EQ(kept3.total() - alone3.total(), 16 * elements / facts.links.ranks) << "and the parameters";
  EXPECT_GT(kept.compute, alone.compute);
  EXPECT_GT(kept.exposed, alone.exposed);
  EXPECT_DOUBLE_EQ(choice(facts, 0, facts.walks[0]).total(), 16 * elements + static_cast<double>(facts.walks[0].peak)) << "nothing to keep";
}

}  // namespace
}  // namespace cohort::plan
