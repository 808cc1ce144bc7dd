// Strategies and codecs in the engine: what the laws of sync and codec say of buckets holds for models.
#include <fmt/format.h>

#include "cohort/codec/codec_row.h"
#include "cohort/engine/testing.h"
#include "cohort/sync/strategy_row.h"

namespace cohort::engine {
namespace {

using testing::HasSubstr;

TrainCase with_sync(const std::string& sync, int ranks = 3) {
  TrainCase train_case{.type = at::kDouble, .steps = 6};
  train_case.rows.assign(static_cast<std::size_t>(ranks), 4);
  train_case.options.strategy = sync;
  train_case.options.bucket = ByteSize{2048};
  return train_case;
}

class Drifting : public testing::TestWithParam<const sync::StrategyRow*> {
 protected:
  static std::string spec() { return std::string(sync::law_spec(*GetParam())); }
};
class DriftingPlainAlone : public Drifting {};
class DriftingAndRepeating : public Drifting {};

std::vector<const sync::StrategyRow*> drifting(const std::function<bool(const sync::StrategyRow&)>& that) {
  std::vector<const sync::StrategyRow*> all;
  for (const auto* row : sync::strategies())
    if (sync::make(row->name)->semantics().drifts() && that(*row)) all.push_back(row);
  return all;
}
const auto by_name = [](const auto& given) { return std::string(given.param->name); };
INSTANTIATE_TEST_SUITE_P(Of, Drifting, testing::ValuesIn(drifting([](const auto&) { return true; })), by_name);
INSTANTIATE_TEST_SUITE_P(Of, DriftingPlainAlone, testing::ValuesIn(drifting([](const auto& row) { return row.plain_alone; })), by_name);
INSTANTIATE_TEST_SUITE_P(Of, DriftingAndRepeating, testing::ValuesIn(drifting([](const auto& row) { return row.repeats; })), by_name);

// After a visit, behind which nobody mixes more in.
Named parameters_of_rank(const CallbackContext& c) {
  c.engine.visit([](const StateItem&) {});
  return copies(c.model.named_parameters());
}

TEST_P(Drifting, AConsensusIsTheSameOnAllRanksAndEveryRankGoesOnWithItsOwn) {
  std::vector<Named> inside(3), before(3), after(3);
  TrainCase train_case = with_sync(spec());
  train_case.after_finish = [&](const CallbackContext& c) {
    if (c.step != 5) return;
    const auto me = static_cast<std::size_t>(c.comm.rank().value);
    before[me] = parameters_of_rank(c);
    {
      const Consensus consensus(c.engine);
      const Consensus within(c.engine);
      inside[me] = parameters_of_rank(c);
    }
    after[me] = parameters_of_rank(c);
  };
  train_ranks(train_case);
  for (std::size_t r = 0; r < 3; ++r) {
    expect_same_bits(inside[r], inside[0], spec());
    expect_same_bits(after[r], before[r], spec());
  }
}

TEST_P(DriftingAndRepeating, LanesBucketsAndRunsChangeNoBit) {
  TrainCase train_case = with_sync(spec());
  train_case.rule = "adam(lr=0.01)";
  const auto expected = train_ranks(train_case);
  for (const int lanes : {0, 1, 2})
    for (const std::size_t bucket : {600U, 100000U}) {
      train_case.options.lanes = lanes;
      train_case.options.bucket = ByteSize{bucket};
      const auto found = train_ranks(train_case);
      for (std::size_t r = 0; r < 3; ++r) expect_same_bits(found[r].params, expected[r].params, fmt::format("{} lanes {}", spec(), lanes));
    }
}

TEST_P(Drifting, ABadGradientOnOneRankSkipsItsStepAlone) {
  TrainCase train_case = with_sync(spec());
  train_case.before_finish = [](const CallbackContext& c) {
    if (c.step == 3 && c.comm.rank().value == 1) c.model.named_parameters()[0].second.grad().fill_(std::nan(""));
  };
  const auto all = train_ranks(train_case);
  for (std::size_t r = 0; r < 3; ++r) {
    const bool alone = sync::make(spec())->schedule(3).commit == sync::Scope::self;
    EXPECT_EQ(all[r].verdicts[2].committed, alone && r != 1);
    for (const auto& [name, t] : all[r].params) EXPECT_TRUE(at::isfinite(t).all().item<bool>()) << name;
  }
}

// Where bits do not repeat all there is to compare is the state itself, and that training goes on.
TEST_P(Drifting, StateThatIsPutBackIsThere) {
  TrainCase train_case = with_sync(spec());
  train_case.rule = "adam(lr=0.01)";
  train_case.options.lanes = 1;
  train_case.after_finish = [](const CallbackContext& c) {
    if (c.step != 3) return;
    std::map<std::string, at::Tensor> saved;
    const auto key = [](const StateItem& item) { return fmt::format("{}/{}@{}", item.group, item.key(), item.run.first); };
    c.engine.visit([&](const StateItem& item) { saved[key(item)] = borrowed(item.values).clone(); });
    c.engine.visit([](const StateItem& item) { borrowed(item.values).fill_(7); });
    c.engine.visit([&](const StateItem& item) { borrowed(item.values).copy_(saved.at(key(item))); });
    c.engine.publish_loaded_state();
    c.engine.visit([&](const StateItem& item) { EXPECT_TRUE(at::equal(borrowed(item.values), saved.at(key(item)))) << key(item); });
  };
  const auto found = train_ranks(train_case);
  for (const auto& rank : found)
    for (const auto& [name, t] : rank.params) EXPECT_LT(t.abs().max().item<double>(), 3) << name << ": nothing of the sevens";
}

TEST_P(DriftingAndRepeating, StateThatIsVisitedAndPutBackIsTheSame) {
  TrainCase train_case = with_sync(spec());
  train_case.rule = "adam(lr=0.01)";
  const auto expected = train_ranks(train_case);
  train_case.after_finish = [](const CallbackContext& c) {
    if (c.step != 3) return;
    std::map<std::string, at::Tensor> saved;
    const auto key = [](const StateItem& item) { return fmt::format("{}/{}@{}", item.group, item.key(), item.run.first); };
    c.engine.visit([&](const StateItem& item) { saved[key(item)] = borrowed(item.values).clone(); });
    c.engine.visit([](const StateItem& item) { borrowed(item.values).fill_(7); });
    c.engine.visit([&](const StateItem& item) { borrowed(item.values).copy_(saved.at(key(item))); });
    c.engine.publish_loaded_state();
  };
  const auto found = train_ranks(train_case);
  for (std::size_t r = 0; r < 3; ++r) expect_same_bits(found[r].params, expected[r].params, spec());
}

TEST_P(DriftingPlainAlone, AWorldOfOneIsPlainTraining) {
  TrainCase train_case = with_sync(spec(), 1);
  const auto found = train_ranks(train_case);
  train_case.options.strategy = "all_reduce";
  expect_near(found[0].params, train_ranks(train_case)[0].params, 1e-12);
}

TEST_P(Drifting, WantsAnOptimizerAndNoEarlyUpdateAndNoCodec) {
  collective::run_ranks(1, [&](collective::Communicator& comm) {
    const at::Tensor w = at::ones({2}).requires_grad_(true);
    const auto why = [&](EngineOptions options, bool rule) {
      options.strategy = spec();
      return failure_of([&] { Engine(comm, {{"w", w}}, options, rule ? optim::make("sgd") : nullptr); }).what;
    };
    EXPECT_THAT(why({}, false), HasSubstr("without an optimizer"));
    EXPECT_THAT(why({.early_update = true}, true), HasSubstr("early_update"));
    if (sync::make(spec())->schedule(1).commit == sync::Scope::self) EXPECT_THAT(why({.codec = "int8"}, true), HasSubstr("models"));
  });
}

// Spellings that the laws of rows do not take.
class Unwaited : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, Unwaited,
                         testing::Values("local_sgd(h=2, wait=none)", "diloco(h=2, wait=none)", "easgd(h=2, async=true)",
                                         "pair_averaging(pull=true)"),
                         [](const auto& given) { return std::string(given.param).substr(0, std::string(given.param).find('(')); });

TEST_P(Unwaited, AConsensusIsTheSameOnAllRanksWithAndWithoutLanes) {
  for (const int lanes : {0, 1}) {
    std::vector<Named> inside(3), before(3), after(3);
    TrainCase train_case = with_sync(GetParam());
    train_case.options.lanes = lanes;
    train_case.after_finish = [&](const CallbackContext& c) {
      if (c.step != 5) return;
      const auto me = static_cast<std::size_t>(c.comm.rank().value);
      before[me] = parameters_of_rank(c);
      {
        const Consensus consensus(c.engine);
        inside[me] = copies(c.model.named_parameters());
      }
      after[me] = copies(c.model.named_parameters());
    };
    train_ranks(train_case);
    for (std::size_t r = 0; r < 3; ++r) {
      expect_same_bits(inside[r], inside[0], GetParam());
      expect_same_bits(after[r], before[r], GetParam());
    }
  }
}

TEST_P(Unwaited, ABadGradientOnOneRankSkipsItsStepAlone) {
  TrainCase train_case = with_sync(GetParam());
  train_case.before_finish = [](const CallbackContext& c) {
    if (c.step == 3 && c.comm.rank().value == 1) c.model.named_parameters()[0].second.grad().fill_(std::nan(""));
  };
  const auto all = train_ranks(train_case);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(all[r].verdicts[2].committed, r != 1);
    for (const auto& [name, t] : all[r].params) EXPECT_TRUE(at::isfinite(t).all().item<bool>()) << name;
  }
}

TEST(LocalSgd, WithRoundsOfOneAndPlainSgdItIsAllReduce) {
  TrainCase train_case = with_sync("all_reduce");
  const auto expected = train_ranks(train_case);
  for (const char* sync : {"local_sgd(h=1)", "diloco(h=1, lr=1, momentum=0)"}) {
    train_case.options.strategy = sync;
    expect_near(train_ranks(train_case)[1].params, expected[1].params, 1e-12, sync);
  }
}

TEST(SyncRounds, SumsOfAllStepsAreKnownAtTheirEnd) {
  collective::run_ranks(2, [](collective::Communicator& comm) {
    const at::Tensor w = at::ones({2}).requires_grad_(true);
    Engine engine(comm, {{"w", w}}, {.strategy = "local_sgd(h=3)", .lanes = 0}, optim::make("sgd(lr=0.1)"));
    for (int step = 1; step <= 6; ++step) {
      engine.begin({.step = step, .lr = 0.1});
      w.sum().backward();
      const std::vector<double> mine{static_cast<double>(step + 10 * comm.rank().value)};
      const Verdict verdict = engine.finish(mine);
      EXPECT_EQ(verdict.sums_of, step % 3 == 0 ? 3 : 0);
      EXPECT_EQ(verdict.sums[0], step == 3 ? 2 * 6 + 30 : step == 6 ? 2 * 15 + 30 : mine[0]);
    }
  });
}

TEST(Disagreements, AreTheDistanceFromTheConsensusAndWhatCodecsKeep) {
  collective::run_ranks(2, [](collective::Communicator& comm) {
    const int me = comm.rank().value;
    const at::Tensor w = at::ones({2}, at::kDouble).requires_grad_(true);
    Engine engine(comm, {{"w", w}}, {.strategy = "parallel_sgd", .lanes = 0}, optim::make("sgd(lr=0.1)"));
    engine.begin({.step = 1, .lr = 0.1});
    (w.sum() * (1 + 2 * me)).backward();  // 0.9 and 0.7, the mean is 0.8
    engine.finish();
    EXPECT_EQ(engine.disagreement().squared_distance, 0) << "without a consensus there is nothing to compare";
    const Consensus consensus(engine);
    EXPECT_NEAR(engine.disagreement().squared_distance, 2 * 0.1 * 0.1, 1e-15);
    EXPECT_NEAR(engine.disagreement().squared_norm, 2 * 0.8 * 0.8, 1e-15);
  });
  collective::run_ranks(2, [](collective::Communicator& comm) {
    const at::Tensor w = at::ones({4}).requires_grad_(true);
    Engine engine(comm, {{"w", w}}, {.strategy = "all_reduce", .codec = "topk(ratio=0.25)", .lanes = 0}, optim::make("sgd(lr=0.5)"));
    engine.begin({.step = 1, .lr = 0.5});
    (w * at::tensor({1.0F, 2.0F, 4.0F, 2.0F})).sum().backward();  // the 4 is sent
    engine.finish();
    EXPECT_EQ(engine.disagreement().squared_residual, 1 + 4 + 4);
    EXPECT_EQ(engine.disagreement().squared_norm, 0);
  });
}

// --- codecs

class Coded : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(By, Coded,
                         testing::Values("fp16", "bf16", "bf16(sum=fp32)", "int8", "topk(ratio=0.25)", "topk(ratio=1)", "qsgd", "sign",
                                         "sign_majority", "randomk(ratio=0.25)", "significant(cap=0.25)"),
                         [](const auto& given) {
                           std::string name;
                           for (const char c : given.param)
                             if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
                           return name;
                         });

TrainCase coded(const std::string& codec, const std::string& sync) {
  TrainCase train_case{.steps = 5, .rows = {3, 4, 3}};
  train_case.options.strategy = sync;
  train_case.options.codec = codec;
  train_case.options.bucket = ByteSize{1500};
  return train_case;
}

TEST_P(Coded, AllReduceAndZeroHaveTheSameBits) {
  const auto expected = train_ranks(coded(GetParam(), "zero(stage=1, op=sum)"));
  for (const char* sync : {"zero(stage=2, op=sum)", "zero(stage=3, op=sum)"})
    expect_same_bits(train_ranks(coded(GetParam(), sync))[1].params, expected[1].params, GetParam() + " " + sync);
  // To all ranks a codec of two hops encodes the sum once more.
  if (codec::make(GetParam())->mix() != codec::Mix::hops)
    expect_same_bits(train_ranks(coded(GetParam(), "all_reduce(op=sum)"))[1].params, expected[1].params, GetParam());
}

TEST_P(Coded, AllRanksEndWithTheSameBitsWhateverLanesAndBuckets) {
  TrainCase train_case = coded(GetParam(), "all_reduce(op=sum)");
  const auto expected = train_ranks(train_case);
  expect_same_bits(expected[0].params, expected[2].params, GetParam());
  for (const int lanes : {1, 2}) {
    train_case.options.lanes = lanes;
    train_case.options.bucket = ByteSize{100000};
    expect_same_bits(train_ranks(train_case)[1].params, expected[1].params, fmt::format("{}, {} lanes", GetParam(), lanes));
  }
}

TEST_P(Coded, AStepThatIsCalledOffLeavesResidualsAsTheyWere) {
  TrainCase train_case = coded(GetParam(), "all_reduce(op=sum)");
  std::vector<std::map<std::string, at::Tensor>> residuals(6);
  train_case.before_finish = [](const CallbackContext& c) {
    if (c.step == 3 && c.comm.rank().value == 2) c.model.named_parameters()[0].second.grad().fill_(INFINITY);
  };
  train_case.after_finish = [&](const CallbackContext& c) {
    if (c.comm.rank().value != 1) return;
    c.engine.visit([&](const StateItem& item) {
      if (item.group == "residual") residuals[static_cast<std::size_t>(c.step)][item.key()] = borrowed(item.values).clone();
    });
  };
  const auto all = train_ranks(train_case);
  EXPECT_FALSE(all[0].verdicts[2].committed);
  for (const auto& [key, t] : residuals[3]) EXPECT_TRUE(at::equal(t, residuals[2].at(key))) << key;
  if (GetParam() == "topk(ratio=0.25)") EXPECT_FALSE(residuals[4].empty());
}

TEST(Codecs, KeepWhatTheyHaveOfAParameterThatGetsNoGradient) {
  for (const char* sync : {"all_reduce", "zero(stage=1)", "zero(stage=2)"})
    collective::run_ranks(2, [&](collective::Communicator& comm) {
      const at::Tensor always = at::ones({40}).requires_grad_(true), once = at::ones({40}).requires_grad_(true);
      Engine engine(comm, {{"always", always}, {"once", once}}, {.strategy = sync, .codec = "topk(ratio=0.1)", .lanes = 0},
                    optim::make("sgd(lr=0.1)"));
      std::vector<at::Tensor> kept;
      for (int step = 1; step <= 3; ++step) {
        engine.begin({.step = step, .lr = 0.1});
        const at::Tensor weights = at::arange(40, at::kFloat) + 1;
        const at::Tensor loss = (always * weights).sum();
        (step == 2 ? loss : loss + (once * weights).sum()).backward();
        engine.finish();
        engine.visit([&](const StateItem& item) {
          if (item.group == "residual" && item.parameter == "once") kept.push_back(borrowed(item.values).clone());
        });
      }
      ASSERT_EQ(kept.size(), 3U) << sync;
      EXPECT_GT(kept[0].abs().max().item<float>(), 1) << "something was kept, or nothing is tested";
      EXPECT_TRUE(at::equal(kept[1], kept[0])) << sync;
      EXPECT_FALSE(at::equal(kept[2], kept[0])) << sync;
    });
}

TEST(Codecs, KeepTheOptionsOfSixteenBitsAsSpellings) {
  for (const auto& [codec, sum] : {std::pair{"bf16(sum=comm)", CommSumDtype::comm}, std::pair{"bf16(sum=fp32)", CommSumDtype::fp32}}) {
    TrainCase train_case = coded(codec, "all_reduce(op=sum)");
    const auto expected = train_ranks(train_case);
    train_case.options.codec = "none";
    train_case.options.comm_dtype = Precision::bf16;
    train_case.options.comm_sum_dtype = sum;
    expect_same_bits(train_ranks(train_case), expected, codec);
  }
}

TEST(Codecs, WithFeedbackRefuseWhatWouldLoseTheirResiduals) {
  TrainCase train_case = coded("topk", "zero(stage=2)");
  train_case.rows = {4, 4};
  train_case.micro = 2;
  EXPECT_THAT(failure_of([&] { train_ranks(train_case); }).what, HasSubstr("accumulation"));
  train_case.micro = 1;
  train_case.options.early_update = true;
  EXPECT_THAT(failure_of([&] { train_ranks(train_case); }).what, HasSubstr("verdict"));
}

}  // namespace
}  // namespace cohort::engine
