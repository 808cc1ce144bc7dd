// Parameter servers in the engine: what the laws of sync say of buckets holds for models, and a step is the servers' update.
#include <fmt/format.h>

#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

using testing::HasSubstr;

TrainCase served(const std::string& sync, const std::string& rule = "adam(lr=0.01)") {
  TrainCase train_case{.type = at::kDouble, .rule = rule, .steps = 6, .rows = {4, 4, 4}};
  train_case.options.strategy = sync;
  train_case.options.bucket = ByteSize{2048};
  return train_case;
}

TEST(Served, BulkSynchronousClocksAreAllReduceBitForBitWhateverLanesAndBuckets) {
  const auto expected = train_ranks(served("all_reduce"));
  for (const char* sync : {"ps", "ps(clock=ssp(0))", "ps(servers=1)"})
    for (const int lanes : {0, 2})
      for (const std::size_t bucket : {600U, 100000U}) {
        TrainCase train_case = served(sync);
        train_case.options.lanes = lanes;
        train_case.options.bucket = ByteSize{bucket};
        const auto found = train_ranks(train_case);
        for (std::size_t r = 0; r < 3; ++r) expect_same_bits(found[r].params, expected[r].params, sync);
      }
}

// Steps go on where they were, and the rule counts from 1: a run that resumes without the optimizer's state.
TEST(Served, TheRuleCountsItsOwnUpdatesWhereStepsWereFinishedBefore) {
  TrainCase train_case = served("all_reduce");
  train_case.opened = [](Engine& engine) { engine.start_at(1000); };
  const auto expected = train_ranks(train_case);
  train_case.options.strategy = "ps";
  const auto found = train_ranks(train_case);
  for (std::size_t r = 0; r < 3; ++r) expect_same_bits(found[r].params, expected[r].params, "resumed");
}

TEST(Served, AConsensusIsTheServersModelOnAllRanks) {
  for (const char* sync : {"ps", "ps(clock=ssp(2))", "ps(clock=tap)"}) {
    std::vector<Named> inside(3);
    TrainCase train_case = served(sync);
    train_case.after_finish = [&](const CallbackContext& c) {
      if (c.step != 5) return;
      const Consensus consensus(c.engine);
      inside[static_cast<std::size_t>(c.comm.rank().value)] = copies(c.model.named_parameters());
    };
    train_ranks(train_case);
    for (const Named& model : inside) expect_same_bits(model, inside[0], sync);
  }
}

// The same bits as if it had not been taken: servers have the state, too.
TEST(Served, StateThatIsVisitedAndPutBackIsTheSame) {
  TrainCase train_case = served("ps");
  const auto expected = train_ranks(train_case);
  train_case.after_finish = [](const CallbackContext& c) {
    if (c.step != 3) return;
    const Consensus consensus(c.engine);
    std::map<std::string, at::Tensor> saved;
    const auto key = [](const StateItem& item) { return fmt::format("{}/{}@{}", item.group, item.key(), item.run.first); };
    c.engine.visit([&](const StateItem& item) { saved[key(item)] = borrowed(item.values).clone(); });
    c.engine.visit([](const StateItem& item) { borrowed(item.values).fill_(7); });
    c.engine.visit([&](const StateItem& item) { borrowed(item.values).copy_(saved.at(key(item))); });
    c.engine.publish_loaded_state();
    EXPECT_FALSE(saved.empty());
  };
  const auto found = train_ranks(train_case);
  for (std::size_t r = 0; r < 3; ++r) expect_same_bits(found[r].params, expected[r].params, "put back");
}

TEST(Served, ABadGradientOnOneRankCallsTheStepOffUnderBulkSynchronousClocks) {
  TrainCase train_case = served("ps", "sgd(lr=0.1)");
  train_case.before_finish = [](const CallbackContext& c) {
    if (c.step == 3 && c.comm.rank().value == 1) c.model.named_parameters()[0].second.grad().fill_(std::nan(""));
  };
  const auto found = train_ranks(train_case);
  train_case.options.strategy = "all_reduce";
  const auto expected = train_ranks(train_case);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(found[r].verdicts[2].committed, r != 1);
    expect_same_bits(found[r].params, expected[r].params, "called off");
  }
}

TEST(Served, RefusesWhatServersCannotDo) {
  collective::run_ranks(1, [](collective::Communicator& comm) {
    const at::Tensor w = at::ones({2}).requires_grad_(true);
    const auto why = [&](EngineOptions options, const char* rule) {
      options.strategy = "ps(clock=ssp(2))";
      return failure_of([&] { Engine(comm, {{"w", w}}, options, rule != nullptr ? optim::make(rule) : nullptr); }).what;
    };
    EXPECT_THAT(why({}, nullptr), HasSubstr("without an optimizer"));
    EXPECT_THAT(why({}, "lamb"), HasSubstr("whole tensors"));
    EXPECT_THAT(why({.codec = "int8"}, "sgd"), HasSubstr("as they are"));
    EXPECT_THAT(why({.early_update = true}, "sgd"), HasSubstr("early_update"));
    EXPECT_THAT(why({.publish = PublishWhen::beside}, "sgd"), HasSubstr("publish=beside"));
  });
}

}  // namespace
}  // namespace cohort::engine
