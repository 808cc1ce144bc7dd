// Sharding changes where things lie, never a bit of the result.
#include "cohort/engine/testing.h"
#include "cohort/nn/unshard/unsharder.h"
#include "cohort/optim/rule.h"

namespace cohort::engine {
namespace {

using testing::HasSubstr;

// A model of several tensors, an optimizer with state, clipping and norms on: whatever could depend on order does.
TrainCase busy(std::size_t ranks) {
  TrainCase train_case{.model = "gpt(vocab=11, context=5, d=16, heads=2, layers=1)", .rule = "adamw(lr=0.01)", .steps = 3};
  train_case.rows = std::vector<std::int64_t>(ranks, 2);
  train_case.rows[ranks / 2] = 3;
  train_case.weight_decay = 0.1;
  train_case.options.clip_norm = 0.5;
  train_case.options.norms = true;
  return train_case;
}

TrainCase at_stage(TrainCase train_case, int stage, int lanes = 0, std::size_t bucket = 25_MiB) {
  if (stage > 0) train_case.options.strategy = fmt::format("zero(stage={}, op=sum)", stage);
  train_case.options.lanes = lanes;
  train_case.options.bucket = ByteSize{bucket};
  train_case.options.first_bucket = ByteSize{300};
  return train_case;
}

// What torch says when `call` fails.
std::string failure_text(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing failed";
}

// Parameters as they are now, whole.
Named now(const CallbackContext& c) {
  if (!c.engine.shards_parameters()) return copies(c.model.named_parameters());
  const auto hold = c.engine.unsharder().hold();
  return copies(c.model.named_parameters());
}

class Stage : public testing::TestWithParam<int> {};
class BareStage : public testing::TestWithParam<int> {};  // of parameters without a model
INSTANTIATE_TEST_SUITE_P(Of, BareStage, testing::Values(1, 2), [](const auto& given) { return std::to_string(given.param); });
INSTANTIATE_TEST_SUITE_P(Of, Stage, testing::Values(1, 2, 3), [](const auto& given) { return std::to_string(given.param); });

TEST_P(Stage, HasTheBitsOfStageZeroForEveryBucketSizeAndNumberOfLanes) {
  const TrainCase train_case = busy(3);
  const auto reference = train_ranks(train_case);
  EXPECT_LT(reference[0].verdicts[0].clip, 1) << "clipping must happen, or it is not tested";
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{700}, std::size_t{4096}, std::size_t{0}})
    for (const int lanes : {0, 1, 2})
      expect_same_bits(train_ranks(at_stage(train_case, GetParam(), lanes, bytes)), reference,
                       fmt::format("{} bytes, {} lanes:", bytes, lanes));
}

TEST_P(Stage, HasTheBitsOfStageZeroForEveryNumberOfRanks) {
  for (const std::size_t ranks : {1, 2, 4, 5}) {
    const auto reference = train_ranks(busy(ranks));
    expect_same_bits(train_ranks(at_stage(busy(ranks), GetParam(), 1, 4096)), reference, fmt::format("{} ranks:", ranks));
  }
}

TEST_P(Stage, HasTheBitsOfStageZeroForEveryRuleAndType) {
  std::vector<std::string> specs{"sgd(lr=0.1)",
                                 "sgd(lr=0.1, momentum=0.9, nesterov=true)",
                                 "adagrad(initial_accumulator_value=0.1)",
                                 "rmsprop(momentum=0.9, centered=true)",
                                 "lars(form=tensorflow)",
                                 "lamb(adapt=all)",
                                 "shampoo(every=1, delay=1, block=6)"};
  for (const optim::Rule* rule : optim::rules()) specs.emplace_back(rule->name);
  for (const std::string& rule : specs)
    for (const auto type : {at::kFloat, at::kDouble}) {
      TrainCase train_case{.model = kTinyMlp, .type = type, .rule = rule, .steps = 3, .rows = {2, 3}};
      train_case.weight_decay = 0.01;
      train_case.options.clip_norm = optim::make(rule)->needs().loss ? 0 : 0.1;  // a clipped gradient is not that of the loss
      expect_same_bits(train_ranks(at_stage(train_case, GetParam(), 0, 256)), train_ranks(train_case), rule);
    }
}

TEST_P(Stage, AveragesAsAllReduceDoes) {
  TrainCase train_case{.steps = 2, .rows = {3, 3}};
  train_case.options.strategy = "all_reduce(op=average)";
  const auto reference = train_ranks(train_case);
  train_case.options.strategy = fmt::format("zero(stage={})", GetParam());
  expect_same_bits(train_ranks(train_case), reference);
}

TEST_P(Stage, AccumulatedStepsRepeatForEveryBucketSizeAndNumberOfLanes) {
  TrainCase train_case = busy(2);
  train_case.options.norms = false;
  train_case.rows = {4, 4};
  train_case.micro = 2;
  const auto reference = train_ranks(GetParam() == 1 ? train_case : at_stage(train_case, 5 - GetParam()));  // 2 as 3
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{0}})
    for (const int lanes : {0, 2})
      expect_same_bits(train_ranks(at_stage(train_case, GetParam(), lanes, bytes)), reference,
                       fmt::format("{} bytes, {} lanes:", bytes, lanes));
  train_case.options.lanes = 0;
  for (const auto& rank :
       train_ranks(at_stage(train_case, GetParam())))  // gradients of a bias of keys are nothing but rounding: 1.3e-5 were seen
    expect_near(rank.params, train_ranks(train_case)[0].params, 3e-5);
}

TEST_P(Stage, EarlyUpdateEqualsThePlainStepWhenNothingGoesWrong) {
  TrainCase train_case = busy(2);
  train_case.options.clip_norm = 0;
  const auto plain = train_ranks(train_case);
  train_case.options.early_update = true;
  for (const int lanes : {0, 2})
    expect_same_bits(train_ranks(at_stage(train_case, GetParam(), lanes, 500)), plain, fmt::format("{} lanes:", lanes));
}

TEST_P(Stage, UnevenAndEmptyBatchesEqualStageZero) {
  for (const auto& rows : {std::vector<std::int64_t>{5, 2, 1}, {8, 0, 0}, {0, 8, 0}}) {
    const TrainCase train_case{.steps = 3, .rows = rows};
    for (const int lanes : {0, 2}) expect_same_bits(train_ranks(at_stage(train_case, GetParam(), lanes, 1)), train_ranks(train_case));
  }
}

// Of tensors smaller than a block, than a cache line, than the world.
TEST_P(BareStage, TinyAndOddTensorsAreShardedToo) {
  for (const int ranks : {1, 2, 5})
    collective::run_ranks(ranks, [&](collective::Communicator& comm) {
      std::vector<Parameter> parameters;
      for (const std::int64_t n : {1, 3, 17, 255, 257, 1000})
        parameters.push_back({fmt::format("p{}", n), at::ones({n}).requires_grad_(true)});
      Engine engine(comm, parameters, {.strategy = fmt::format("zero(stage={}, op=sum)", GetParam()), .bucket = ByteSize{1100}, .lanes = 1},
                    optim::make("sgd(lr=1)"));
      for (int step = 1; step <= 2; ++step) {
        engine.begin({.step = step, .lr = 1});
        at::Tensor loss = at::zeros({});
        for (const auto& p : parameters) loss = loss + (p.tensor * at::arange(p.tensor.numel())).sum();
        loss.backward();
        EXPECT_TRUE(engine.finish().committed);
      }
      for (const auto& p : parameters)
        EXPECT_TRUE(at::equal(p.tensor.detach(), 1 - 2.0F * static_cast<float>(ranks) * at::arange(p.tensor.numel(), at::kFloat)))
            << p.name;
    });
}

TEST_P(Stage, ABadGradientOnOneRankSkipsTheStepEverywhereAndTrainingGoesOn) {
  for (const int lanes : {0, 2}) {
    TrainCase train_case = at_stage({.rule = "adam(lr=0.01)", .steps = 3, .rows = {3, 3, 3}}, GetParam(), lanes, 100);
    std::vector<Named> params(3);
    train_case.after_begin = [&](const CallbackContext& c) {
      if (c.step != 2) return;
      params[static_cast<std::size_t>(c.comm.rank().value)] = now(c);
      const at::Tensor weight = c.model.named_parameters()[2].second;
      if (c.comm.rank() == Rank{1}) weight.mutable_grad() = at::full_like(weight, std::numeric_limits<float>::quiet_NaN());
    };
    train_case.after_finish = [&](const CallbackContext& c) {
      if (c.step == 2) expect_same_bits(now(c), params[static_cast<std::size_t>(c.comm.rank().value)]);
    };
    for (const auto& rank : train_ranks(train_case)) {
      EXPECT_TRUE(rank.verdicts[0].committed);
      EXPECT_FALSE(rank.verdicts[1].committed);
      EXPECT_TRUE(rank.verdicts[2].committed);
    }
  }
}

TEST_P(BareStage, AParameterWithoutGradientIsLeftAloneWhenNoRankHasOne) {
  for (const int lanes : {0, 2}) expect_left_alone_without_gradient(fmt::format("zero(stage={})", GetParam()), lanes);
}

TEST_P(BareStage, MovesTwoThirdsOfTwiceTheParametersOverThreeRanks) {
  for (const int lanes : {0, 1})
    collective::run_ranks(3, [&](collective::Communicator& comm) {
      std::vector<Parameter> parameters;
      for (int i = 0; i < 4; ++i) parameters.push_back({fmt::format("p{}", i), at::ones({3 * 256 * 16}).requires_grad_(true)});
      constexpr std::uint64_t kPsi = 4 * 3 * 256 * 16;
      Engine engine(comm, parameters,
                    {.strategy = fmt::format("zero(stage={})", GetParam()), .bucket = ByteSize{100000}, .lanes = lanes, .clip_norm = 1},
                    optim::make("adam"));
      const auto moved = [&](collective::Collective which) { return comm.moved(which).elements; };
      const auto all_reduced = moved(collective::Collective::all_reduce);
      for (int step = 1; step <= 3; ++step) {
        engine.begin({.step = step, .lr = 1});
        at::Tensor loss = at::zeros({});
        for (const auto& p : parameters) loss = loss + p.tensor.sum();
        loss.backward();
        engine.finish();
        EXPECT_EQ(moved(collective::Collective::reduce_scatter), static_cast<std::uint64_t>(step) * kPsi * 2 / 3);
        EXPECT_EQ(moved(collective::Collective::all_gather), static_cast<std::uint64_t>(step) * kPsi * 2 / 3);
      }
      EXPECT_LT(moved(collective::Collective::all_reduce) - all_reduced, 3u * 120) << "votes";
    });
}

TEST_P(Stage, HoldsWhatItsFormulaSays) {
  constexpr std::size_t kPsi = 8 * 4096, kRanks = 4;
  collective::run_ranks(1, [&](collective::Communicator& alone) {
    const at::Tensor w = at::ones({kPsi}).requires_grad_(true);
    const auto before = [](MemoryClass c) { return Ledger::process().of(c).now; };
    const std::size_t p = before(MemoryClass::parameters), g = before(MemoryClass::gradients), o = before(MemoryClass::optimizer);
    const auto quarter = sync::make(fmt::format("zero(stage={})", GetParam()))->placement(Rank{2}, kRanks);
    sync::BufferPool pool(alone);
    Bucket bucket(0, {{.name = "w", .param = w}}, alone, quarter, &pool);
    bucket.own_parameters(*optim::make("adam"), alone);
    EXPECT_EQ(before(MemoryClass::parameters) - p, GetParam() < 3 ? 4 * kPsi : 4 * kPsi / kRanks);
    EXPECT_EQ(before(MemoryClass::gradients) - g, GetParam() == 1 ? 4 * kPsi : 4 * kPsi / kRanks);
    EXPECT_EQ(before(MemoryClass::optimizer) - o, 8 * kPsi / kRanks);
  });
}

TEST(Stages, TwoKeepsAsManyBucketsInFlightAsLanesCarryAndOneMore) {
  for (const int lanes : {0, 1})
    collective::run_ranks(2, [&](collective::Communicator& comm) {
      std::vector<Parameter> parameters;
      for (int i = 0; i < 12; ++i) parameters.push_back({fmt::format("p{}", i), at::ones({4096}).requires_grad_(true)});
      Engine engine(comm, parameters, {.strategy = "zero(stage=2)", .bucket = ByteSize{4 * 4096}, .lanes = lanes}, optim::make("adam"));
      for (int step = 1; step <= 3; ++step) {
        engine.begin({.step = step, .lr = 1});
        at::Tensor x = at::ones({});
        for (const auto& p : parameters) x = (x * p.tensor).mean();  // a chain: gradients come one after the other
        x.backward();
        engine.finish();
      }
      EXPECT_LE(engine.bytes_in_flight(), static_cast<std::size_t>(lanes + 1) * 4 * 4096);
    });
}

TEST_P(Stage, ShardsCoverEveryElementOnceAndCanBeLoadedBack) {
  TrainCase train_case = at_stage(busy(3), GetParam(), 0, 4096);
  std::vector<std::map<std::string, at::Tensor>> whole(3);  // by rank: its shards in tensors of NaN
  train_case.after_finish = [&](const CallbackContext& c) {
    auto& mine = whole[static_cast<std::size_t>(c.comm.rank().value)];
    c.engine.visit([&](const StateItem& item) {
      at::Tensor& t = mine[std::string(item.parameter) + "/" + std::string(item.state)];
      if (!t.defined()) t = at::full(item.shape, std::numeric_limits<double>::quiet_NaN(), at::kFloat);
      t.view(-1)
          .narrow(0, static_cast<std::int64_t>(item.run.first), static_cast<std::int64_t>(item.run.count))
          .copy_(borrowed(item.values));
    });
    if (c.step == 2) {  // scribbled over and loaded back
      c.engine.visit([](const StateItem& item) { borrowed(item.values).fill_(7); });
      c.engine.visit([&](const StateItem& item) {
        borrowed(item.values)
            .copy_(mine[std::string(item.parameter) + "/" + std::string(item.state)].view(-1).narrow(
                0, static_cast<std::int64_t>(item.run.first), static_cast<std::int64_t>(item.run.count)));
      });
      c.engine.publish_loaded_state();
    }
  };
  TrainCase reference = busy(3);
  Named state;
  const auto all = train_ranks(reference);
  const auto sharded = train_ranks(train_case);
  expect_same_bits(sharded[1].params, all[1].params);
  std::size_t found = 0;
  for (const auto& [name, t] : all[0].state) {
    at::Tensor sum = at::zeros_like(t), holders = at::zeros_like(t);
    for (auto& mine : whole) {
      const auto it = mine.find(name);
      if (it == mine.end()) continue;
      holders += at::isnan(it->second).logical_not().to(at::kFloat);
      sum += at::nan_to_num(it->second);
    }
    EXPECT_TRUE(at::equal(holders, at::ones_like(t))) << name;
    EXPECT_TRUE(at::equal(sum, t)) << name;
    ++found;
  }
  EXPECT_GT(found, 10u);
}

TEST(StageThree, MovesThreeTimesTheParametersAndKeepsNoneOfThemUnsharded) {
  for (const int lanes : {0, 1}) {
    TrainCase train_case = at_stage(busy(3), 3, lanes);
    train_case.model = "gpt(vocab=11, context=5, d=16, heads=2, layers=1, tied=false)";  // a tied weight is gathered for each of its blocks
    const auto moved = [](const CallbackContext& c) {
      std::vector<double> sums{static_cast<double>(c.comm.moved(collective::Collective::reduce_scatter).elements),
                               static_cast<double>(c.comm.moved(collective::Collective::all_gather).elements)};
      c.comm.all_reduce(collective::piece(std::span(sums)), collective::Op::sum);
      return sums;
    };
    train_case.after_finish = [&](const CallbackContext& c) {
      double psi = 0;
      for (const auto& b : c.engine.buckets()) psi += static_cast<double>(b->bytes() / 4);
      const auto sums = moved(c);
      EXPECT_EQ(sums[0], c.step * psi * 2);  // of all three ranks together: 3 * psi * (3 - 1) / 3
      EXPECT_EQ(sums[1], c.step * psi * 2 * 2);
      EXPECT_EQ(c.engine.unsharder().resident(), 0u);
      EXPECT_LE(c.engine.unsharder().most_resident(), 4u) << "a block, the tied embedding, and what backward has not unloaded yet";
      if (nn::Units::reads_can_throw()) {
        EXPECT_THAT(failure_text([&] { c.model.named_parameters()[0].second.sum().item<float>(); }),
                    HasSubstr("is read while it is sharded"));
      }
    };
    train_ranks(train_case);
  }
}

TEST(StageThree, EvaluatesThroughTheSameBlocks) {
  TrainCase train_case = at_stage(busy(2), 3, 1);
  const TrainCase plain = busy(2);
  at::Tensor expected;
  TrainCase reference = plain;
  reference.after_finish = [&](const CallbackContext& c) {
    const at::NoGradGuard no_grad;
    if (c.comm.rank() == Rank{0}) expected = c.model.forward(c.model.example(3, 5));
  };
  reference.steps = train_case.steps = 2;
  train_ranks(reference);
  train_case.after_finish = [&](const CallbackContext& c) {
    const at::NoGradGuard no_grad;
    const at::Tensor found = c.model.forward(c.model.example(3, 5));
    EXPECT_EQ(c.engine.unsharder().resident(), 0u);
    EXPECT_TRUE(c.step < 2 || at::equal(found, expected));
  };
  train_ranks(train_case);
}

TEST(StageThree, WithoutBlocksIsRefused) {
  collective::run_ranks(1, [](collective::Communicator& comm) {
    const at::Tensor w = at::ones({2}).requires_grad_(true);
    const auto error = failure_of([&] { Engine(comm, {{"w", w}}, {.strategy = "zero(stage=3)", .lanes = 0}, optim::make("sgd")); });
    EXPECT_THAT(error.what, HasSubstr("no parameter is in a block"));
  });
}

TEST_P(Stage, OffloadedToAFileItTrainsTheSame) {
  TrainCase train_case = busy(2);
  const auto reference = train_ranks(train_case);
  train_case.options.strategy = fmt::format("zero(stage={}, op=sum, offload=\"file:{}\")", GetParam(), testing::TempDir());
  train_case.after_begin = [](const CallbackContext& c) {
    if (c.step > 1) return;
    EXPECT_GT(c.engine.buckets().size(), 0u);
  };
  expect_same_bits(train_ranks(train_case), reference);
}

// The model's parameters stay where they are, as copies of what the engine holds: on a GPU they would be there, here they are beside it.
TEST(Stages, WithCopiesInTheModelItTrainsTheSame) {
  for (const int stage : {2, 3}) {
    for (const int lanes : {0, 1}) {
      TrainCase train_case = busy(2);
      train_case.options.lanes = lanes;
      const auto reference = train_ranks(train_case);
      train_case.options.strategy = fmt::format("zero(stage={}, op=sum, offload=host)", stage);
      train_case.after_begin = [&](const CallbackContext& c) {
        for (const auto& b : c.engine.buckets())
          for (std::size_t i = 0; i < b->members().size(); ++i)
            EXPECT_TRUE(b->placement().gathers_parameters() || b->param(i).data_ptr() != b->owned_parameter(b->members()[i]).data);
      };
      expect_same_bits(train_ranks(train_case), reference);
    }
  }
}

TEST(Stages, InvalidOptionsAreRefusedWithTheReason) {
  collective::run_ranks(1, [](collective::Communicator& comm) {
    const at::Tensor w = at::ones({2}).requires_grad_(true);
    const auto why = [&](const EngineOptions& options, const char* rule) {
      return failure_of([&] { Engine(comm, {{"w", w}}, options, rule ? optim::make(rule) : nullptr); }).what;
    };
    EXPECT_THAT(why({.strategy = "zero(stage=1)"}, nullptr), HasSubstr("without an optimizer"));
    EXPECT_THAT(why({.strategy = "zero(stage=4)"}, "sgd"), HasSubstr("stage"));
    EXPECT_THAT(why({.strategy = "zero(stage=1, offload=host)"}, "sgd"), HasSubstr("stages 2 and 3"));
    EXPECT_THAT(why({.strategy = "zero(offload=disk)"}, "sgd"), HasSubstr("file:FOLDER"));
    EXPECT_THAT(why({.strategy = "zero(offload=\"file:/nowhere\")"}, "adam"), HasSubstr("/nowhere"));
    EXPECT_THAT(failure_of([&] {
                  Engine(comm, {{"w", w}}, {.strategy = "zero(stage=1)", .lanes = 0}, optim::make("sgd")).restore_from_buddy(Rank{0});
                }).what,
                HasSubstr("buddy=true"));
    Engine engine(comm, {{"w", w}}, {.strategy = "zero(stage=2)", .lanes = 0, .norms = true}, optim::make("adam"));
    EXPECT_THAT(failure_of([&] { engine.begin({.step = 1, .lr = 1}, false); }).what, HasSubstr("norms"));
  });
}

}  // namespace
}  // namespace cohort::engine
