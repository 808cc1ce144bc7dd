// A lost rank ends the step of the others in bounded time; an engine may be destroyed at any moment and leaves the tensors usable.
#include "cohort/base/slowdown.h"
#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

using testing::HasSubstr;

struct RankDies {};

// Rank 1 dies in a callback; the others must be told by finish().
void expect_noticed(const TrainCase& train_case) {
  at::set_num_threads(1);
  collective::run_ranks(3, [&](collective::Communicator& comm) {
    const auto start = Clock::now();
    try {
      train_one_rank(train_case, comm);
      ADD_FAILURE() << "rank " << comm.rank().value << " noticed nothing";
    } catch (const RankDies&) {
      EXPECT_EQ(comm.rank(), Rank{1});
    } catch (const Failure& failure) {
      EXPECT_NE(comm.rank(), Rank{1}) << failure.what();
      EXPECT_TRUE(failure.kind() == Kind::peer_lost || failure.kind() == Kind::aborted) << failure.what();
      EXPECT_THAT(failure.what(), HasSubstr("rank 1"));
      EXPECT_LT(Seconds(Clock::now() - start).count(), 2 * slowdown());
    }
  });
}

TEST(ALostRank, IsNamedByFinishOnTheSurvivors) {
  for (const int lanes : {0, 1, 3})
    for (const bool early : {true, false}) {
      TrainCase train_case{.rule = "sgd(lr=0.1)", .steps = 4, .rows = {2, 2, 2}};
      train_case.options.lanes = lanes;
      train_case.options.bucket = ByteSize{1};
      const auto leave = [](const CallbackContext& c) {
        if (c.step == 3 && c.comm.rank() == Rank{1}) throw RankDies{};
      };
      (early ? train_case.after_begin : train_case.before_finish) = leave;
      expect_noticed(train_case);
    }
}

TEST(ADestroyedEngine, LeavesParametersAndGradientsUsable) {
  for (const int lanes : {0, 2}) {
    const at::Tensor w = at::ones({4}).requires_grad_(true);
    collective::run_ranks(1, [&](collective::Communicator& comm) {
      Engine engine(comm, {{"w", w}}, {.lanes = lanes}, optim::make("sgd(lr=1)"));
      engine.begin({.step = 1, .lr = 1});
      w.sum().backward();
      engine.finish();
    });
    EXPECT_EQ(w[3].item<float>(), 0);
    w.sum().backward();  // no hook of the engine is left
    EXPECT_EQ(w.grad()[3].item<float>(), 1);
    const at::NoGradGuard no_grad;
    w.sub_(w.grad());
    EXPECT_EQ(w[3].item<float>(), -1);
  }
}

TEST(ADestroyedEngine, BetweenStepsDoesNotEndTheCommunicator) {
  collective::run_ranks(2, [](collective::Communicator& comm) {
    const at::Tensor w = at::ones({4}).requires_grad_(true);
    for (int round = 0; round < 3; ++round) {
      Engine engine(comm, {{"w", w}}, {.lanes = 2}, optim::make("sgd(lr=1)"));
      engine.begin({.step = 1, .lr = 1});
      w.sum().backward();
      engine.finish();
      engine.begin({.step = 2, .lr = 1});  // begun, and destroyed before the first gradient
    }
    comm.barrier();
    EXPECT_EQ(w[0].item<float>(), -2);
  });
}

// Rank 0's lanes wait for gradients of a rank that never gets there; destroying the engine must not wait with them.
TEST(ADestroyedEngine, InTheMiddleOfAStepEndsInBoundedTimeAndIsNoticed) {
  collective::run_ranks(2, [](collective::Communicator& comm) {
    const at::Tensor a = at::ones({4}).requires_grad_(true), b = at::ones({4}).requires_grad_(true);
    const auto start = Clock::now();
    {
      Engine engine(comm, {{"a", a}, {"b", b}}, {.bucket = ByteSize{1}, .lanes = 2}, optim::make("sgd"));
      if (comm.rank() == Rank{1}) {
        const auto error = failure_of([&] { comm.barrier(); });
        EXPECT_TRUE(error.kind == Kind::aborted || error.kind == Kind::peer_lost) << error.what;
      } else {
        engine.begin({.step = 1, .lr = 1});
        (a.sum() + b.sum()).backward();
      }
    }
    EXPECT_LT(Seconds(Clock::now() - start).count(), 2 * slowdown());
  });
}

TEST(AFailedEngine, FailsAgainAndLeavesNoHookBehind) {
  collective::run_ranks(2, [](collective::Communicator& comm) {
    const at::Tensor w = at::ones({4}).requires_grad_(true);
    if (comm.rank() == Rank{1}) {
      comm.barrier();
      return;
    }
    {
      comm.barrier();
      EXPECT_NE(failure_of([&] { Engine(comm, {{"w", w}}, {.lanes = 2}, optim::make("sgd")); }).kind, Kind::bug);
    }
    w.sum().backward();
    EXPECT_EQ(w.grad()[0].item<float>(), 1);
  });
}

// An elastic job's vote fails on one rank, after all have voted: nothing has changed there, and it can end the step by itself with the
// bits of the others, or leave it.
TEST(AStepHeldBackByAFurtherVote, IsEndedAloneWithTheBitsOfTheOthers) {
  for (const bool ends : {true, false})
    collective::run_ranks(2, [&](collective::Communicator& comm) {
      const at::Tensor w = at::ones({4}).requires_grad_(true);
      Engine engine(comm, {{"w", w}}, {.strategy = "all_reduce(op=sum)", .lanes = 0, .clip_norm = 1}, optim::make("sgd(lr=1)"));
      engine.before_update([&] {
        EXPECT_EQ(w[0].item<float>(), 1) << "the update came before the vote";
        if (comm.rank() == Rank{1}) throw_failure(Kind::peer_lost, "the result of the vote did not arrive");
      });
      engine.begin({.step = 1, .lr = 1});
      (w.sum() * (comm.rank().value + 1)).backward();
      if (comm.rank() == Rank{0}) {
        engine.finish();
      } else {
        EXPECT_THAT(failure_of([&] { engine.finish(); }).what, HasSubstr("did not arrive"));
        EXPECT_EQ(engine.step_state(), StepState::undecided);
        EXPECT_EQ(w[0].item<float>(), 1);
        if (ends) engine.finish_step_alone(engine.decision());
      }
      float others = w[0].item<float>();
      comm.broadcast(collective::piece(std::span(&others, 1)), Rank{0});
      EXPECT_NEAR(others, 0.5, 1e-5);  // a gradient of 3 in each of four places, clipped to a norm of 1
      EXPECT_EQ(w[0].item<float>(), ends || comm.rank() == Rank{0} ? others : 1);
    });
}

TEST(Lanes, AreAsManyAsOnTheRankWithTheFewestCores) {
  collective::run_ranks(2, [](collective::Communicator& comm) {
    const at::Tensor a = at::ones({4}).requires_grad_(true), b = at::ones({4}).requires_grad_(true);
    Engine engine(comm, {{"a", a}, {"b", b}}, {.bucket = ByteSize{1}}, optim::make("sgd"), comm.rank() == Rank{0} ? 8 : 1, 1);
    EXPECT_EQ(engine.lanes().lanes, 0);
    EXPECT_THAT(engine.lanes().why, HasSubstr(comm.rank() == Rank{0} ? "fewest" : "none free"));
  });
}

}  // namespace
}  // namespace cohort::engine
