#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cohort/bench/step/options.h"
#include "cohort/bench/step/results.h"
#include "cohort/bench/step/rounds.h"
#include "cohort/bench/testing.h"

namespace cohort::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

StepOptions parse_step(std::vector<std::string> words) {
  words.insert(words.begin(), "step");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  return parse_step_options(static_cast<int>(argv.size()), argv.data()).value();
}

StepRow row(const std::string& who, double rate, double loss = 0.5) {
  StepRow r{.who = who, .model = "mlp", .ranks = 2, .batch = 64};
  summarize(r, {{.samples_per_s = rate, .first_loss = 2.3, .last_loss = loss}});
  return r;
}

TEST(StepOptions, AWordStandsForModelDataAndSteps) {
  const auto o = parse_step({"--model", "cnn", "-n", "2,4", "--batch", "32", "--against", "torch-ddp,unsynced", "--json"});
  EXPECT_EQ(o.spec(), "cnn(in=1, size=28, classes=10)");
  EXPECT_EQ(o.data_spec(), "fashion_mnist(split=train)");
  EXPECT_GT(o.timed_steps(), 0);
  EXPECT_THAT(o.ranks, ElementsAre(2, 4));
  EXPECT_THAT(o.against, ElementsAre("torch-ddp", "unsynced"));
  EXPECT_EQ(o.batch, 32);
  EXPECT_TRUE(o.json);
  EXPECT_EQ(parse_step({"--steps", "7", "--warm", "2"}).timed_steps(), 7);
}

TEST(StepOptions, AnyOtherModelIsASpecOfTheZooWithDataOfItsShape) {
  const auto o = parse_step({"--model", "mlp(in=64, hidden=8)"});
  EXPECT_EQ(o.spec(), "mlp(in=64, hidden=8)");
  EXPECT_EQ(o.data_spec(), "");
  EXPECT_EQ(parse_step({"--model", "mlp", "--data", "synthetic"}).data_spec(), "synthetic");
}

TEST(StepOptions, PlainIsOursWithoutWhatIsMeasured) {
  const auto o = parse_step({"--sync", "zero(stage=2, buddy=true)", "--recompute", "every(2)", "--against", "plain"});
  EXPECT_EQ(o.plain_sync(), "zero(stage=2)");
  EXPECT_EQ(o.recompute, "every(2)");
  EXPECT_EQ(parse_step({}).plain_sync(), "all_reduce(op=sum)");
}

TEST(StepOptions, RefuseWithTheWordThatIsWrong) {
  EXPECT_THAT(message_of([] { parse_step({"--against", "torch-dpd"}); }), HasSubstr("torch-ddp"));
  EXPECT_THAT(message_of([] { parse_step({"-n", "0"}); }), HasSubstr("-n 0"));
  EXPECT_THAT(message_of([] { parse_step({"--batch", "0"}); }), HasSubstr("--batch 0"));
  EXPECT_THAT(message_of([] { parse_step({"--lr", "-1"}); }), HasSubstr("--lr -1"));
  EXPECT_THAT(message_of([] { parse_step({"--sync", "zero(stage="}); }), HasSubstr("zero(stage="));
  EXPECT_THAT(message_of([] { parse_step({"--recompute", "all"}); }), HasSubstr("all"));
  EXPECT_THAT(message_of([] { parse_step({"--tokens", "-1"}); }), HasSubstr("--tokens -1"));
  EXPECT_THAT(message_of([] { parse_step({"--rounds", "0"}); }), HasSubstr("--rounds 0"));
  EXPECT_THAT(message_of([] { parse_step({"--optim", "sgd"}); }), HasSubstr("--optimizer"));
  EXPECT_THAT(message_of([] { parse_step({"--against", "previous"}); }), HasSubstr("--previous FOLDER"));
  EXPECT_THAT(message_of([] { parse_step({"--previous", "bin"}); }), HasSubstr("without --against previous"));
  EXPECT_THAT(message_of([] { parse_step({"--require", "-1"}); }), HasSubstr("--require -1"));
  EXPECT_THAT(message_of([] { parse_step({"--nonsense"}); }), HasSubstr("cohort bench step --help"));
  EXPECT_NE(message_of([] { parse_step({"--model", "mlp(in="}); }), "nothing was thrown");
}

TEST(StepResults, ReadTheLineAmongOtherWordsAndTheSharesWhereThereAreAny) {
  const auto ours = parse_step_line(
      "hello\n{\"samples_per_s\":10,\"first_loss\":2.3,\"last_loss\":0.5,\"compute_share\":0.9,"
      "\"wait_share\":0.04,\"comm_share\":0.06}\n");
  EXPECT_EQ(ours.samples_per_s, 10);
  EXPECT_EQ(ours.comm, 0.06);
  EXPECT_FALSE(parse_step_line("{\"samples_per_s\":10,\"last_loss\":0.5}").wait.has_value());
  EXPECT_THAT(message_of([] { parse_step_line("{\"samples\":10}"); }), HasSubstr("samples per second"));
  EXPECT_THAT(message_of([] { parse_step_line("killed"); }), HasSubstr("killed"));
}

TEST(StepResults, AreMediansOverRoundsWithTheirSpread) {
  StepRow r;
  summarize(r, {{.samples_per_s = 30, .comm = 0.3}, {.samples_per_s = 10, .comm = 0.1}, {.samples_per_s = 20, .comm = 0.2}});
  EXPECT_EQ(r.samples_per_s, 20);
  EXPECT_EQ(r.low, 10);
  EXPECT_EQ(r.high, 30);
  EXPECT_EQ(r.comm, 0.2);
  EXPECT_FALSE(r.wait.has_value());
  EXPECT_EQ(r.rounds, 3);
}

std::vector<StepLine> rates(std::initializer_list<double> all) {
  std::vector<StepLine> lines;
  for (const double rate : all) lines.push_back({.samples_per_s = rate});
  return lines;
}

TEST(StepResults, ARatioIsTheMedianOfPairsBetweenOrderStatistics) {
  StepRow r;
  compare(r, rates({10, 20, 30, 40, 50}), rates({10, 10, 10, 10, 10}));
  EXPECT_EQ(r.ratio, 3);
  EXPECT_FALSE(r.ratio_low) << "of five pairs the smallest and the largest are a 94 % interval";
  compare(r, rates({6, 1, 2, 3, 5, 4}), rates({1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(r.ratio_low, 1);
  EXPECT_EQ(r.ratio_high, 6);
  StepRow ten;
  compare(ten, rates({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), rates({1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(ten.ratio_low, 2) << "one toss or none of ten: 11 of 1024; two or fewer: 56";
  EXPECT_EQ(ten.ratio_high, 9);
}

TEST(StepResults, WhatIsSlowerThanRequiredIsNamed) {
  StepRow ours = row("cohort", 1), slow = row("previous", 1), sure = row("previous", 1), fine = row("previous", 1);
  slow.ratio = 0.97;
  sure.ratio = 0.99, sure.ratio_low = 0.985, sure.ratio_high = 0.999;
  fine.ratio = 0.99, fine.ratio_low = 0.98, fine.ratio_high = 1.01;
  EXPECT_THAT(find_slower({ours, slow, sure, fine}, 0.98), ElementsAre(HasSubstr("0.970 of previous"), HasSubstr("does not reach 1")));
  EXPECT_THAT(find_slower({ours, slow, sure, fine}, 0), IsEmpty());
  EXPECT_THAT(find_slower({ours, row("previous", 1)}, 0.98), ElementsAre(HasSubstr("no ratio to previous")));
}

TEST(StepResults, AnotherBuildThatTrainsOtherBitsIsNamed) {
  EXPECT_THAT(compare_losses({row("cohort", 1, 0.5), row("previous", 1, 0.5)}), IsEmpty());
  EXPECT_THAT(compare_losses({row("cohort", 1, 0.5), row("previous", 1, 0.5000001)}), ElementsAre(HasSubstr("other bits than before")));
}

TEST(StepResults, JsonHasEveryFieldAndNullForWhatIsUnknown) {
  auto r = row("torch-ddp", 14000);
  r.ratio = 2.5;
  const auto j = nlohmann::json::parse(json_line(r));
  for (const char* field : {"who",           "model",      "ranks",      "batch",       "samples_per_s", "low",        "high",
                            "compute_share", "wait_share", "comm_share", "ratio",       "ratio_low",     "ratio_high", "first_loss",
                            "last_loss",     "rounds",     "recompute",  "moved_bytes", "peak_bytes",    "void"})
    EXPECT_TRUE(j.contains(field)) << field;
  EXPECT_TRUE(j.at("comm_share").is_null());
  EXPECT_EQ(j.at("ratio"), 2.5);
  EXPECT_THAT(step_table({row("cohort", 35000), r}), testing::AllOf(HasSubstr("35000"), HasSubstr("2.50x"), HasSubstr("2.300 to 0.500")));
}

TEST(StepResults, ImplementationsThatDoNotTrainAlikeAreNamed) {
  EXPECT_THAT(compare_losses({row("cohort", 1, 0.50), row("torch-ddp", 1, 0.52)}), IsEmpty());
  EXPECT_THAT(compare_losses({row("cohort", 1, 0.50), row("torch-ddp", 1, 0.80)}), ElementsAre(HasSubstr("torch-ddp")));
}

TEST(StepResults, ARunInWhichDdpIsTooSlowIsVoidOnMachinesThatAreKnown) {
  const Machine known{"AMD EPYC", 2};
  std::vector<StepRow> quiet{row("cohort", 35000), row("torch-ddp", 13000)}, busy{row("cohort", 20000), row("torch-ddp", 9000)};
  EXPECT_THAT(find_voids(quiet, known), IsEmpty());
  EXPECT_THAT(find_voids(busy, known), ElementsAre(HasSubstr("VOID: torch-ddp")));
  EXPECT_TRUE(busy[0].spoiled);
  EXPECT_FALSE(quiet[0].spoiled);
  EXPECT_THAT(find_voids(busy, {"another", 64}), IsEmpty());
}

TEST(Rounds, TheOrderRotatesSoThatEachIsFirstOnce) {
  std::vector<std::size_t> order;
  for_each_start(3, 3, [&](std::size_t who, int, double) { order.push_back(who); });
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 1, 2, 0, 2, 0, 1));
}

}  // namespace
}  // namespace cohort::bench
