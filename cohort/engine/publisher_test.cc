// Parameters that travel beside the next forward: no bit of the result changes, and nobody reads old ones.
#include "cohort/engine/publisher.h"

#include <future>

#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

using testing::HasSubstr;

TrainCase beside(int stage, PublishWhen publish = PublishWhen::beside) {
  TrainCase train_case{
      .model = "gpt(vocab=11, context=5, d=16, heads=2, layers=2)", .rule = "adamw(lr=0.01)", .steps = 4, .rows = {2, 3, 2}};
  train_case.weight_decay = 0.1;
  train_case.options.strategy = fmt::format("zero(stage={}, op=sum)", stage);
  train_case.options.clip_norm = 0.5;
  train_case.options.first_bucket = ByteSize{300};
  train_case.options.bucket = ByteSize{2000};
  train_case.options.publish = publish;
  return train_case;
}

class Beside : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stage, Beside, testing::Values(1, 2), [](const auto& given) { return std::to_string(given.param); });

TEST_P(Beside, HasTheBitsOfWaitingForEveryRuleBucketSizeAndNumberOfLanes) {
  for (const char* rule : {"adamw(lr=0.01)", "lamb(lr=0.01)", "muon(lr=0.01)"}) {
    TrainCase waiting = beside(GetParam(), PublishWhen::wait);
    waiting.rule = rule;
    const auto expected = train_ranks(waiting);
    for (const int lanes : {0, 2})
      for (const std::size_t bucket : {std::size_t{600}, std::size_t{0}}) {
        TrainCase train_case = beside(GetParam());
        train_case.rule = rule;
        train_case.options.lanes = lanes;
        train_case.options.bucket = ByteSize{bucket};
        expect_same_bits(train_ranks(train_case), expected, fmt::format("{}, {} lanes, buckets of {}", rule, lanes, bucket));
      }
  }
}

TEST_P(Beside, HasTheBitsOfWaitingWithAccumulation) {
  TrainCase train_case = beside(GetParam());
  train_case.rows = {4, 6};
  train_case.micro = 2;
  const auto found = train_ranks(train_case);
  train_case.options.publish = PublishWhen::wait;
  expect_same_bits(found, train_ranks(train_case));
}

// The model is evaluated, and its state looked at, between steps.
TEST_P(Beside, BlocksAndVisitorsSeeUpdatedParameters) {
  const auto seen = [&](PublishWhen publish) {
    std::vector<Named> all(3);
    TrainCase train_case = beside(GetParam(), publish);
    train_case.after_finish = [&](const CallbackContext& c) {
      Named& mine = all[static_cast<std::size_t>(c.comm.rank().value)];
      const at::NoGradGuard no_grad;
      if (c.step % 2 == 1) mine.emplace_back("logits", c.model.forward(c.model.example(2, 9)).clone());
      c.engine.visit([&](const StateItem& item) { mine.emplace_back(item.key(), borrowed(item.values).clone()); });
      c.engine.await_parameters();
      for (const auto& [name, t] : copies(c.model.named_parameters())) mine.emplace_back(name, t);
    };
    train_ranks(train_case);
    return all;
  };
  const auto found = seen(PublishWhen::beside), expected = seen(PublishWhen::wait);
  for (std::size_t r = 0; r < 3; ++r) expect_same_bits(found[r], expected[r]);
}

// A rank's step ends although another one has not begun to publish.
TEST_P(Beside, AStepEndsBeforeOtherRanksHavePublished) {
  std::promise<void> ended;
  const auto end = ended.get_future().share();
  TrainCase train_case = beside(GetParam());
  train_case.rows = {2, 2};
  train_case.before_finish = [&](const CallbackContext& c) {
    if (c.step == 2 && c.comm.rank().value == 1)
      c.engine.before_update([&] { EXPECT_EQ(end.wait_for(std::chrono::seconds(100)), std::future_status::ready); });
  };
  train_case.after_finish = [&](const CallbackContext& c) {
    if (c.step == 2 && c.comm.rank().value == 0) ended.set_value();
    if (c.step == 2) c.engine.before_update({});
  };
  train_ranks(train_case);
}

TEST_P(Beside, ALostRankIsNamedByTheNextStep) {
  TrainCase train_case = beside(GetParam());
  train_case.rows = {2, 2};
  train_case.before_finish = [](const CallbackContext& c) {
    if (c.step != 2 || c.comm.rank().value != 1) return;
    c.engine.before_update([&comm = c.comm] {
      comm.abort({Kind::aborted, "rank 1 gives up", Rank{1}});
      throw_failure(Kind::aborted, "rank 1 gives up");
    });
  };
  std::vector<int> finished(2);
  train_case.after_finish = [&](const CallbackContext& c) { finished[static_cast<std::size_t>(c.comm.rank().value)] = c.step; };
  EXPECT_THAT(failure_of([&] { train_ranks(train_case); }).what, HasSubstr("rank 1 gives up"));
  EXPECT_LE(finished[0], 2) << "the step after it needs what never came";
  EXPECT_EQ(finished[1], 1);
}

TEST(PublishBeside, IsRefusedWhereNothingCouldTravelThen) {
  const auto why = [](const std::string& sync, bool early = false) {
    TrainCase train_case = beside(1);
    train_case.rows = {2};
    train_case.options.strategy = sync;
    train_case.options.early_update = early;
    if (early) train_case.options.clip_norm = 0;
    return failure_of([&] { train_ranks(train_case); }).what;
  };
  EXPECT_THAT(why("all_reduce"), HasSubstr("every rank updates all parameters"));
  EXPECT_THAT(why("zero(stage=3)"), HasSubstr("block by block"));
  EXPECT_THAT(why("zero(stage=1)", true), HasSubstr("early_update"));
  collective::run_ranks(1, [](collective::Communicator& comm) {
    const at::Tensor w = at::ones({2}).requires_grad_(true);
    const auto bare = [&] { Engine(comm, {{"w", w}}, {.strategy = "zero(stage=1)", .publish = PublishWhen::beside}, optim::make("sgd")); };
    EXPECT_THAT(failure_of(bare).what, HasSubstr("no parameter is in a block"));
  });
}

}  // namespace
}  // namespace cohort::engine
