// Models on a GPU with gradients, the rule's state and the update there, too: all_reduce and zero(stage=1..3).
#include "cohort/engine/testing.h"
#include "cohort/sync/elements.h"

namespace cohort::engine {
namespace {

constexpr const char* kResidentGpt = "gpt(vocab=17, context=8, d=16, heads=2, layers=2)";
const std::vector<std::string> kStrategies{"all_reduce(op=sum)", "zero(stage=1, op=sum)", "zero(stage=2, op=sum)", "zero(stage=3, op=sum)"};

TrainCase resident_case_of(const std::string& strategy, at::ScalarType type, const char* model = kTinyMlp) {
  // Hooks of stage 2 wait for a buffer where there are many buckets: on the thread that the ranks' backwards share, as below.
  const ByteSize bucket = strategy.find("stage=2") == std::string::npos ? ByteSize{2000} : ByteSize{25_MiB};
  return {.model = model,
          .type = type,
          .options = {.strategy = strategy, .bucket = bucket, .lanes = 1},
          .rule = "adamw(lr=0.01)",
          .steps = 4,
          .rows = {4, 3},
          .weight_decay = 0.1};
}

// Backwards of one process share a thread for each GPU, where ranks as threads would wait for each other's gathers in stage 3.
TrainCase resident_case(TrainCase train_case) {
  train_case.device = at::Device(at::kCUDA, 0);
  return train_case.options.strategy.find("stage=3") == std::string::npos ? train_case : alone(std::move(train_case));
}

Named resident_on_cpu(Named all) {
  for (auto& [name, t] : all) t = t.cpu();
  return all;
}

TEST(GpuResident, TrainsAsTheCpuDoes) {
  for (const auto& strategy : kStrategies)
    for (const char* model : {kTinyMlp, kResidentGpt}) {
      const TrainCase train_case = resident_case(resident_case_of(strategy, at::kDouble, model));
      TrainCase here = train_case;
      here.device = at::kCPU;
      const auto expected = train_ranks(here), found = train_ranks(train_case);
      for (std::size_t r = 0; r < found.size(); ++r) {
        EXPECT_TRUE(found[r].params[0].second.is_cuda());
        expect_near(resident_on_cpu(found[r].params), expected[r].params, 1e-10, strategy);
        for (std::size_t s = 0; s < found[r].verdicts.size(); ++s)
          EXPECT_NEAR(found[r].verdicts[s].squared_after / expected[r].verdicts[s].squared_after, 1, 1e-9) << strategy;
      }
    }
}

TEST(GpuResident, RepeatsBitForBitAndStagesAndLanesChangeNoBit) {
  const auto once = train_ranks(resident_case(resident_case_of(kStrategies[0], at::kFloat)));
  expect_same_bits(train_ranks(resident_case(resident_case_of(kStrategies[0], at::kFloat))), once, "again");
  expect_same_bits(once.front().params, once.back().params, "ranks");
  for (const char* strategy : {"zero(stage=1, op=sum)", "zero(stage=2, op=sum)"})
    expect_same_bits(train_ranks(resident_case(resident_case_of(strategy, at::kFloat))), once, strategy);
  TrainCase without_lanes = resident_case(resident_case_of(kStrategies[0], at::kFloat));
  without_lanes.options.lanes = 0;
  expect_same_bits(train_ranks(without_lanes), once, "no lanes");
  const auto one = train_ranks(alone(resident_case(resident_case_of(kStrategies[0], at::kFloat))));
  expect_same_bits(train_ranks(resident_case(resident_case_of(kStrategies[3], at::kFloat))), one, "stage 3");
}

TEST(GpuResident, ClipsAndMeasuresNormsAsTheCpuDoes) {
  TrainCase there = resident_case(resident_case_of(kStrategies[1], at::kDouble));
  there.rule = "lamb(lr=0.01)";
  there.options.norms = true;
  there.options.clip_norm = 0.01;
  TrainCase here = there;
  here.device = at::kCPU;
  const auto expected = train_ranks(here), found = train_ranks(there);
  expect_near(resident_on_cpu(found[1].params), expected[1].params, 1e-10);
  const Verdict &a = found[0].verdicts[3], &b = expected[0].verdicts[3];
  EXPECT_LT(a.clip, 1);
  EXPECT_NEAR(a.clip / b.clip, 1, 1e-9);
  EXPECT_NEAR(a.squared_before / b.squared_before, 1, 1e-9);
}

TEST(GpuResident, AGradientThatIsNotFiniteCallsTheStepOffOnAllRanks) {
  for (const auto& strategy : {kStrategies[0], kStrategies[1]}) {
    TrainCase train_case = resident_case(resident_case_of(strategy, at::kFloat));
    train_case.before_finish = [](const CallbackContext& c) {
      if (c.step == 2 && c.comm.rank() == Rank{1}) c.model.named_parameters()[0].second.grad()[0][0] = std::nan("");
    };
    train_case.options.lanes = 0;
    const auto found = train_ranks(train_case);
    for (const auto& rank : found) {
      EXPECT_TRUE(rank.verdicts[0].committed);
      EXPECT_FALSE(rank.verdicts[1].committed);
      EXPECT_TRUE(rank.verdicts[2].committed);
      for (const auto& [name, t] : rank.params) EXPECT_TRUE(t.isfinite().all().item<bool>()) << name;
    }
    expect_same_bits(found[0].params, found[1].params);
  }
}

// What is saved and loaded: visit() shows the host's copies, and publish_loaded_state() takes over what was written into them.
TEST(GpuResident, StateIsReadAndWrittenByWayOfTheHost) {
  for (const auto& strategy : kStrategies) {
    TrainCase train_case = alone(resident_case(resident_case_of(strategy, at::kFloat)));
    std::map<std::string, std::vector<float>> saved;
    const auto values_of = [](const StateItem& item) {
      EXPECT_EQ(item.values.device, Device::cpu);
      const auto* const first = static_cast<const float*>(item.values.data);
      return std::vector<float>(first, first + item.values.count);
    };
    train_case.after_finish = [&](const CallbackContext& c) {
      if (c.step == 2) c.engine.visit([&](const StateItem& item) { saved[std::string(item.group) + item.key()] = values_of(item); });
      if (c.step != 4) return;
      c.engine.visit([&](const StateItem& item) {
        const auto& from = saved.at(std::string(item.group) + item.key());
        std::copy(from.begin(), from.end(), static_cast<float*>(item.values.data));
      });
      c.engine.publish_loaded_state();
    };
    const auto back = train_ranks(train_case);
    TrainCase short_one = alone(resident_case(resident_case_of(strategy, at::kFloat)));
    short_one.steps = 2;
    const auto expected = train_ranks(short_one);
    expect_same_bits(back[0].params, expected[0].params, strategy);
    if (!back[0].sharded) expect_same_bits(back[0].state, expected[0].state, strategy);
  }
}

TEST(GpuResident, WhatDoesNotTrainThereIsRefusedWithWhatToDo) {
  const auto why = [](const std::string& strategy, const std::string& rule, const std::string& codec = "none") {
    TrainCase train_case = alone(resident_case(resident_case_of(strategy, at::kFloat)));
    train_case.options.strategy = strategy;
    train_case.options.codec = codec;
    train_case.rule = rule;
    return failure_of([&] { train_ranks(train_case); }).what;
  };
  using testing::HasSubstr;
  EXPECT_THAT(why("local_sgd", "sgd"), HasSubstr("take all_reduce or zero"));
  EXPECT_THAT(why("all_reduce", "adafactor"), HasSubstr("take one of single elements"));
  EXPECT_THAT(why("all_reduce", "sgd", "topk(ratio=0.1)"), HasSubstr("take codec=none"));
  EXPECT_THAT(why("zero(stage=1, buddy=true)", "sgd"), HasSubstr("leave buddy=true out"));
}

}  // namespace
}  // namespace cohort::engine
