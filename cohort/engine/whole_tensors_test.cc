// Rules that update whole tensors, with state of shapes of its own: where things lie changes no bit for them either.
#include <algorithm>
#include <map>
#include <mutex>

#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kConvolving = "cnn(in=1, size=8, classes=3, norm=group)";  // filters, vectors, a head
constexpr const char* kEmbedding = "gpt(vocab=11, context=5, d=16, heads=2, layers=1)";

TrainCase busy(const std::string& rule, const char* model, std::size_t ranks) {
  TrainCase train_case{.model = model, .rule = rule, .steps = 3};
  train_case.rows = std::vector<std::int64_t>(ranks, 2);
  train_case.rows[ranks / 2] = 3;
  train_case.weight_decay = 0.1;
  train_case.options.clip_norm = 0.5;
  return train_case;
}

TrainCase sharded(TrainCase train_case, int stage, bool buddy, int lanes, std::size_t bucket) {
  if (stage > 0) train_case.options.strategy = fmt::format("zero(stage={}, op=sum, buddy={})", stage, buddy);
  train_case.options.lanes = lanes;
  train_case.options.bucket = ByteSize{bucket};
  train_case.options.first_bucket = ByteSize{300};
  return train_case;
}

class WholeTensors : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, WholeTensors, testing::Values("adafactor", "muon"),
                         [](const auto& given) { return std::string(given.param); });

TEST_P(WholeTensors, EveryStageHasTheBitsOfStageZeroForOneToFourRanks) {
  for (const char* model : {kConvolving, kEmbedding})
    for (const std::size_t ranks : {1, 2, 3, 4}) {
      const auto reference = train_ranks(busy(GetParam(), model, ranks));
      for (const int stage : {1, 2, 3})
        for (const bool buddy : {false, true})
          expect_same_bits(train_ranks(sharded(busy(GetParam(), model, ranks), stage, buddy, buddy ? 0 : 1, 4096)), reference,
                           fmt::format("{}, {} ranks, stage {}, buddy {}:", model, ranks, stage, buddy));
    }
}

TEST_P(WholeTensors, BucketsAndLanesChangeNoBitAndStateMovesWithItsTensor) {
  const auto reference = train_ranks(busy(GetParam(), kEmbedding, 2));
  for (const int stage : {0, 2})
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{0}})
      for (const int lanes : {0, 2})  // with lanes stage 0 makes its buckets anew after the first step
        expect_same_bits(train_ranks(sharded(busy(GetParam(), kEmbedding, 2), stage, false, lanes, bytes)), reference,
                         fmt::format("stage {}, {} bytes, {} lanes:", stage, bytes, lanes));
}

TEST_P(WholeTensors, RanksEqualOneWithTheWholeBatch) {
  TrainCase train_case = busy(GetParam(), kTinyMlp, 3);
  train_case.type = at::kDouble;
  const auto one = train_ranks(alone(train_case));
  for (const auto& rank : train_ranks(sharded(train_case, 1, false, 0, 4096))) expect_near(rank.params, one[0].params, 1e-9);
}

TEST_P(WholeTensors, AccumulatedStepsHaveTheBitsOfTheirStagesForEveryBucketSize) {
  TrainCase train_case = busy(GetParam(), kConvolving, 2);
  train_case.rows = {4, 4};
  train_case.micro = 2;
  for (const auto& [stage, as] : {std::pair{1, 0}, std::pair{3, 2}}) {
    const auto reference = train_ranks(sharded(train_case, as, false, 0, 4096));
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{0}})
      expect_same_bits(train_ranks(sharded(train_case, stage, false, 1, bytes)), reference,
                       fmt::format("stage {}, {} bytes:", stage, bytes));
  }
}

// What is visited, by tensor and state: its shape, and of every element how often.
struct Seen {
  Shape shape;
  std::vector<int> times;
};
using Visited = std::map<std::string, Seen>;

Visited visit_all(const std::string& rule, int stage, std::size_t ranks) {
  std::mutex mutex;
  Visited all;
  TrainCase train_case = sharded(busy(rule, kConvolving, ranks), stage, false, 0, 4096);
  train_case.steps = 1;
  train_case.after_finish = [&](const CallbackContext& c) {
    c.engine.visit([&](const StateItem& item) {
      if (item.share == Share::identical && c.comm.rank() != Rank{0}) return;
      const std::lock_guard lock(mutex);
      Seen& seen = all[item.key()];
      seen.shape = item.shape;
      seen.times.resize(optim::count_of(item.shape));
      EXPECT_EQ(item.values.count, item.run.count);
      for (std::size_t i = item.run.first; i < item.run.last(); ++i) ++seen.times.at(i);
      EXPECT_TRUE(item.run.count == seen.times.size()) << item.key() << ": tensors are not cut";
    });
  };
  train_ranks(train_case);
  return all;
}

TEST_P(WholeTensors, EveryElementOfEveryStateIsVisitedOnceAndNoTensorIsCut) {
  for (const int stage : {0, 1, 3}) {
    const Visited all = visit_all(GetParam(), stage, 3);
    for (const auto& [key, seen] : all) EXPECT_THAT(seen.times, testing::Each(1)) << key << ", stage " << stage;
    const bool factors = std::string_view(GetParam()) == "adafactor";
    EXPECT_EQ(all.contains("fc.weight/row_var"), factors);
    EXPECT_EQ(all.contains("fc.weight/momentum_buffer"), !factors);
    EXPECT_EQ(all.contains(factors ? "fc.bias/variance" : "fc.bias/exp_avg_sq"), true);
    EXPECT_EQ(all.contains("head.weight/exp_avg"), !factors) << "adamw's";
    if (factors) EXPECT_THAT(all.at("stage2.conv.weight/row_var").shape, ElementsAre(64, 32, 3, 1));
  }
}

TEST_P(WholeTensors, AStepThatIsCalledOffChangesNothing) {
  for (const int stage : {0, 1, 3}) {
    TrainCase train_case = sharded(busy(GetParam(), kTinyMlp, 2), stage, stage == 1, 0, 4096);
    std::vector<std::vector<at::Tensor>> before(2);
    const auto held = [](const Engine& engine) {
      std::vector<at::Tensor> all;
      engine.visit([&](const StateItem& item) { all.push_back(borrowed(item.values).clone()); });
      return all;
    };
    train_case.before_finish = [&](const CallbackContext& c) {
      if (c.step == 2) before[static_cast<std::size_t>(c.comm.rank().value)] = held(c.engine);
    };
    train_case.options.clip_norm = 0;
    train_case.after_begin = [&](const CallbackContext& c) {
      if (c.step == 2 && c.comm.rank() == Rank{1})
        c.model.named_parameters().back().second.register_hook([](const at::Tensor& g) { return g * std::nanf(""); });
    };
    train_case.after_finish = [&](const CallbackContext& c) {
      if (c.step != 2) return;
      const auto now = held(c.engine);
      const auto& was = before[static_cast<std::size_t>(c.comm.rank().value)];
      ASSERT_EQ(now.size(), was.size());
      for (std::size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(at::equal(now[i], was[i]));
    };
    train_case.steps = 2;
    EXPECT_FALSE(train_ranks(train_case)[0].verdicts[1].committed) << stage;
  }
}

// At stage 0 they are shared out over the ranks, above each owner has its own; in the background of either.
TEST(Roots, OfShampooAreTheSameWhoeverComputesThem) {
  for (const std::size_t ranks : {1, 2, 3}) {
    TrainCase train_case = busy("shampoo(every=2, delay=1, block=16)", kConvolving, ranks);
    train_case.steps = 6;
    const auto reference = train_ranks(train_case);
    expect_same_bits(train_ranks(train_case), reference, "again:");
    for (const int stage : {1, 2, 3})
      for (const bool buddy : {false, true})
        expect_same_bits(train_ranks(sharded(train_case, stage, buddy, 0, 4096)), reference,
                         fmt::format("{} ranks, stage {}, buddy {}:", ranks, stage, buddy));
  }
}

TEST_P(WholeTensors, EarlyUpdateIsRefused) {
  TrainCase train_case = busy(GetParam(), kTinyMlp, 1);
  train_case.options.clip_norm = 0;
  train_case.options.early_update = true;
  EXPECT_THAT(failure_of([&] { train_ranks(train_case); }).what, HasSubstr("computes with whole tensors"));
}

TEST(WholeTensors, TheStateOfAdafactorIsAsSmallAsItSays) {
  const auto held = [](const char* rule) {
    std::size_t bytes = 0;
    collective::run_ranks(1, [&](collective::Communicator& comm) {
      const nn::Model model = nn::make_model("mlp(in=64, hidden=256x256, out=10)", kTestSeed);
      const std::size_t before = Ledger::process().of(MemoryClass::optimizer).now;
      const Engine engine(comm, parameters_of(model), {}, optim::make(rule));
      bytes = Ledger::process().of(MemoryClass::optimizer).now - before;
    });
    return bytes;
  };
  EXPECT_LT(held("adafactor") * 20, held("sgd(momentum=0.9)"));
  EXPECT_LT(held("muon"), held("adamw") * 6 / 10) << "one number for each of a matrix";
}

}  // namespace
}  // namespace cohort::engine
