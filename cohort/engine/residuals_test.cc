// What a codec kept goes with the ranks: what moves parameters in the end is what all of them had not sent.
#include "cohort/engine/residuals.h"

#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

// What all residuals together would still add to the gradient that every rank updates with, by parameter.
std::map<std::string, std::vector<double>> owed(const std::vector<Residuals>& all, bool averages) {
  std::map<std::string, std::vector<double>> total;
  for (const Residuals& one : all)
    for (const auto& [name, values] : one.sent) {
      auto& sum = total[name];
      sum.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i] / (averages ? static_cast<double>(all.size()) : 1);
    }
  for (const Residuals& one : all)
    for (const auto& [name, run] : one.sums)
      for (std::size_t i = 0; i < run.values.size(); ++i) total[name][run.first + i] += run.values[i];
  return total;
}

std::vector<Residuals> after_training(const std::string& codec, const std::string& sync, int ranks) {
  std::vector<Residuals> all(static_cast<std::size_t>(ranks));
  TrainCase train_case{.model = kTinyMlp, .rule = "sgd(lr=0.1)", .steps = 3, .rows = std::vector<std::int64_t>(all.size(), 4)};
  train_case.options.strategy = sync;
  train_case.options.codec = codec;
  train_case.options.bucket = ByteSize{1500};
  train_case.after_finish = [&](const CallbackContext& c) {
    if (c.step == 3) all[static_cast<std::size_t>(c.comm.rank().value)] = capture_residuals(c.engine, c.comm.size());
  };
  train_ranks(train_case);
  return all;
}

// Restored on so many ranks, of which the first ones had a part before.
std::vector<Residuals> restored(const std::vector<Residuals>& before, const std::string& codec, const std::string& sync, int ranks) {
  std::vector<Residuals> all(static_cast<std::size_t>(ranks));
  collective::run_ranks(ranks, [&](collective::Communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank().value);
    nn::Model model = nn::make_model(kTinyMlp, kTestSeed);
    Engine engine(comm, parameters_of(model), {.strategy = sync, .codec = codec, .bucket = ByteSize{1500}}, optim::make("sgd(lr=0.1)"));
    restore_residuals(comm, engine, me < before.size() ? &before[me] : nullptr);
    EXPECT_EQ(engine.residual_weight(), before[0].weight);
    all[me] = capture_residuals(engine, ranks);
  });
  return all;
}

void expect_owed(const std::vector<Residuals>& found, const std::vector<Residuals>& expected, const std::string& sync) {
  const bool averages = sync.find("sum") == std::string::npos;
  const auto now = owed(found, averages), before = owed(expected, averages);
  double most = 0;
  for (const auto& [name, values] : before)
    for (std::size_t i = 0; i < values.size(); ++i) {
      most = std::max(most, std::abs(values[i]));
      ASSERT_NEAR(now.at(name)[i], values[i], 1e-6 * std::max(1e-3, std::abs(values[i]))) << name << " " << i << " " << sync;
    }
  EXPECT_GT(most, 0) << "nothing was kept: nothing is tested";
}

class Carried : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  const std::string& codec() const { return std::get<0>(GetParam()); }
  const std::string& sync() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(By, Carried,
                         testing::Combine(testing::Values("topk(ratio=0.1)", "int8", "powersgd(rank=1, min_rate=1)", "dgc(ratio=0.1)"),
                                          testing::Values("all_reduce(op=average)", "all_reduce(op=sum)", "zero(stage=2, op=average)")));

TEST_P(Carried, ToMoreAndToFewerRanksNothingIsLost) {
  const auto before = after_training(codec(), sync(), 3);
  EXPECT_GT(before[0].weight, 0);
  expect_owed(restored(before, codec(), sync(), 5), before, sync());
  auto staying = before;  // rank 2 leaves as planned
  collective::run_ranks(3, [&](collective::Communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank().value);
    hand_over_residuals(comm, staying[me], me == 2);
  });
  staying.pop_back();
  expect_owed(restored(staying, codec(), sync(), 2), before, sync());
}

TEST_P(Carried, OnAsManyRanksTheBitsStay) {
  const auto before = after_training(codec(), sync(), 3), now = restored(before, codec(), sync(), 3);
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(now[r].sent, before[r].sent);
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(now[r].memory, before[r].memory);
}

TEST(Residuals, OfPowersgdHaveTheSameDirectionsOnAllRanksWhoeverComesOrLeaves) {
  const std::string codec = "powersgd(rank=1, min_rate=1)";
  const auto before = after_training(codec, "all_reduce", 2);
  ASSERT_FALSE(before[0].memory.empty());
  for (const auto& [name, values] : before[0].memory) EXPECT_NE(values, std::vector<float>(values.size())) << name;
  for (const int ranks : {2, 4})
    for (const Residuals& one : restored(before, codec, "all_reduce", ranks)) EXPECT_EQ(one.memory, before[0].memory);
  auto came = before;
  came[0].memory.clear();  // rank 0 has just come
  for (const Residuals& one : restored(came, codec, "all_reduce", 3)) EXPECT_EQ(one.memory, before[0].memory);
}

TEST(Residuals, OfDgcHaveAVelocityBesideWhatWasNotSent) {
  const auto before = after_training("dgc(ratio=0.1)", "all_reduce", 2);
  std::size_t velocities = 0;
  for (const auto& [name, values] : before[0].sent) velocities += name.ends_with("/velocity") ? 1 : 0;
  EXPECT_EQ(2 * velocities, before[0].sent.size());
}

TEST(Residuals, WithoutACodecThereIsNothingToCarry) {
  const auto before = after_training("none", "all_reduce", 2);
  EXPECT_TRUE(before[0].sent.empty());
  restored(before, "none", "all_reduce", 3);
}

}  // namespace
}  // namespace cohort::engine
