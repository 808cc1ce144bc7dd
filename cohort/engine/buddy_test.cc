// Buddy copies: whenever a rank is lost, the others have all of a step or nothing of it, the lost rank's part included.
#include <array>
#include <condition_variable>
#include <mutex>
#include <set>

#include "cohort/collective/failing_communicator.h"
#include "cohort/engine/testing.h"
#include "cohort/nn/unshard/unsharder.h"

namespace cohort::engine {
namespace {

using collective::Communicator;
using collective::FailingCommunicator;
using collective::Op;
using testing::HasSubstr;

TrainCase with_buddies(int stage, int lanes = 0) {
  TrainCase train_case{.model = "gpt(vocab=11, context=5, d=16, heads=2, layers=1)",
                       // muon: tensors that are not cut; lamb: with a round of sums after the vote
                       .rule = stage == 1   ? "muon(lr=0.01)"
                               : stage == 2 ? "lamb(lr=0.01)"
                                            : "adamw(lr=0.01)",
                       .steps = 3,
                       .rows = {2, 3, 2}};
  train_case.weight_decay = 0.1;
  train_case.options.clip_norm = 0.5;
  train_case.options.lanes = lanes;
  train_case.options.bucket = ByteSize{4096};
  train_case.options.first_bucket = ByteSize{300};
  train_case.options.strategy = fmt::format("zero(stage={}, op=sum, buddy=true)", stage);
  return train_case;
}

// Everything that is trained, and its state, put together from runs of elements.
using Whole = std::map<std::string, at::Tensor>;
struct Collector {
  std::mutex mutex;
  Whole whole;
  std::function<void(const StateItem&)> visit() {
    return [this](const StateItem& item) {
      const std::lock_guard lock(mutex);
      const auto [place, fresh] = whole.try_emplace(item.key());
      if (fresh) place->second = at::full({c10::multiply_integers(item.shape)}, std::nan(""));
      place->second.narrow(0, static_cast<std::int64_t>(item.run.first), static_cast<std::int64_t>(item.run.count))
          .copy_(borrowed(item.values));
    };
  }
};

void expect_same(const Whole& found, const Whole& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (const auto& [name, t] : expected) EXPECT_TRUE(at::equal(found.at(name), t)) << what << ": " << name;
}

// What all ranks together hold after each step, by step.
std::vector<Whole> truth(int stage) {
  std::vector<Collector> after(4);
  TrainCase train_case = with_buddies(stage);
  train_case.after_finish = [&](const CallbackContext& c) { c.engine.visit(after[static_cast<std::size_t>(c.step)].visit()); };
  train_ranks(train_case);
  std::vector<Whole> all;
  for (auto& a : after) all.push_back(a.whole);
  return all;
}

class Buddy : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(OfStage, Buddy, testing::Values(1, 2, 3), [](const auto& given) { return std::to_string(given.param); });

TEST_P(Buddy, HoldsTheBitsOfTheRankBeforeItAfterEveryStep) {
  for (const int lanes : {0, 2}) {
    TrainCase train_case = with_buddies(GetParam(), lanes);
    std::array<Collector, 4> own, copies_of;
    train_case.after_finish = [&](const CallbackContext& c) {
      c.engine.visit(own[static_cast<std::size_t>(c.step)].visit());
      c.engine.visit_buddy(copies_of[static_cast<std::size_t>(c.step)].visit());
    };
    train_ranks(train_case);
    for (std::size_t step = 1; step < own.size(); ++step) expect_same(copies_of[step].whole, own[step].whole, fmt::format("step {}", step));
  }
}

TEST_P(Buddy, ChangesNoBitOfTheResult) {
  TrainCase train_case = with_buddies(GetParam());
  const auto with = train_ranks(train_case);
  train_case.options.strategy = "all_reduce(op=sum)";
  expect_same_bits(with, train_ranks(train_case));
}

TEST_P(Buddy, CopiesAccumulatedStepsToo) {
  TrainCase train_case = with_buddies(GetParam());
  train_case.rows = {4, 4, 4};
  train_case.micro = 2;
  Collector own, copies_of;
  train_case.after_finish = [&](const CallbackContext& c) {
    c.engine.visit(own.visit());
    c.engine.visit_buddy(copies_of.visit());
  };
  train_ranks(train_case);
  expect_same(copies_of.whole, own.whole, "accumulated");
}

TEST_P(Buddy, CostsAShardOfGradientsAStep) {
  TrainCase train_case = with_buddies(GetParam());
  train_case.after_finish = [&](const CallbackContext& c) {
    std::size_t psi = 0;
    for (const auto& b : c.engine.buckets()) psi += b->bytes() / 4;
    auto sent = static_cast<double>(c.comm.moved(collective::Collective::all_to_all).elements);
    c.comm.all_reduce(collective::piece(std::span(&sent, 1)), Op::sum);
    EXPECT_EQ(sent, static_cast<double>(psi) * c.step);
  };
  train_ranks(train_case);
}

// A fresh engine in the place of the lost one gets everything back and goes on as if nothing had happened.
TEST_P(Buddy, RestoresWhatALostRankHad) {
  constexpr int kLost = 1;
  const TrainCase plain = with_buddies(GetParam());
  TrainCase train_case = plain;
  train_case.after_finish = [&](const CallbackContext& c) {
    if (c.step != 2) return;
    if (c.comm.rank() == Rank{kLost})  // what a fresh process would hold
      c.engine.visit([](const StateItem& item) { borrowed(item.values).fill_(-1); });
    c.engine.restore_from_buddy(Rank{kLost});
  };
  expect_same_bits(train_ranks(train_case), train_ranks(plain));
}

// Rank `lost` is lost in the `at`-th operation of the third step; rank `uninformed` does not learn how its `misses_end_at`-th ended.
struct Accident {
  int lost = 1, at = 0, uninformed = -1, misses_end_at = -1;
};

std::vector<std::string> operations_of_the_third_step(int stage) {
  std::vector<std::string> found;
  collective::run_ranks(3, [&](Communicator& comm) {
    FailingCommunicator failing(comm);
    TrainCase train_case = with_buddies(stage);
    train_case.after_finish = [&](const CallbackContext& c) {
      if (c.step == 3 && comm.rank() == Rank{0}) found = failing.operations;
      failing.operations.clear();
    };
    train_one_rank(train_case, failing);
  });
  return found;
}

// Ranks as threads; those that survive compare their steps, end the step that one of them knows to be decided, and show what they have.
// Returns the step they are at.
int survive(int stage, const Accident& accident, Whole& found) {
  Collector collector;
  std::mutex mutex;
  std::condition_variable changed;
  int reported = 0, furthest = 0;
  Decision decision;
  collective::run_ranks(3, [&](Communicator& comm) {
    FailingCommunicator failing(comm);
    int done = 0;
    bool survived = false;
    TrainCase train_case = with_buddies(stage);
    train_case.steps = 4;  // a rank may be lost after the last operation of the third
    train_case.after_finish = [&](const CallbackContext& c) {
      done = c.step;
      if (c.step == 2) failing.operations.clear();
      if (c.step == 2 && comm.rank() == Rank{accident.lost}) failing.dies_at = accident.at;
      if (c.step == 2 && comm.rank() == Rank{accident.uninformed}) failing.misses_end_at = accident.misses_end_at;
    };
    train_case.survived = [&](Engine& engine) {
      survived = true;
      const bool ended = engine.step_state() == StepState::decided && done == 2;
      std::unique_lock lock(mutex);
      if (const int mine = done + (ended ? 1 : 0); mine > furthest) furthest = mine, decision = engine.decision();
      ++reported;
      changed.notify_all();
      ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return reported == 2; }));
      lock.unlock();
      if (done < furthest) engine.finish_step_alone(decision);
      engine.visit(collector.visit());
      if (comm.rank().value == (accident.lost + 1) % 3) engine.visit_buddy(collector.visit());
    };
    try {
      train_one_rank(train_case, failing);
      EXPECT_TRUE(survived) << "rank " << comm.rank().value << " noticed nothing";
    } catch (const collective::RankDies&) {
      EXPECT_EQ(comm.rank(), Rank{accident.lost});
    }
  });
  found = std::move(collector.whole);
  return furthest;
}

// Wherever in a step that is: in every operation of forward, backward, vote and update, and at the beginning of the next.
TEST_P(Buddy, LosesNothingWhereverARankIsLost) {
  const auto steps = truth(GetParam());
  const int operations = static_cast<int>(operations_of_the_third_step(GetParam()).size());
  ASSERT_GT(operations, 6);
  std::set<int> ends;
  for (int at = 0; at < operations + 2; ++at)
    for (const int lost : {0, 1}) {
      Whole found;
      const int end = survive(GetParam(), {.lost = lost, .at = at}, found);
      ends.insert(end);
      expect_same(found, steps[static_cast<std::size_t>(end)], fmt::format("rank {} lost in operation {} of {}", lost, at, operations));
    }
  EXPECT_THAT(ends, testing::ElementsAre(2, 3)) << "in some the step was decided, in others not";
}

TEST_P(Buddy, ARankThatMissedTheResultOfAVoteTakesItFromAnother) {
  const auto steps = truth(GetParam());
  const auto operations = operations_of_the_third_step(GetParam());
  int vote = -1;  // the last of them: then the step is decided
  for (std::size_t i = 0; i < operations.size(); ++i)
    if (operations[i] == "the step's vote" || operations[i] == "sums of the rule") vote = static_cast<int>(i);
  Whole found;
  EXPECT_EQ(survive(GetParam(), {.lost = 1, .at = vote + 1, .uninformed = 0, .misses_end_at = vote}, found), 3);
  expect_same(found, steps[3], "the step was decided, and one survivor did not know");
}

TEST(Buddies, InvalidOptionsAreRefusedWithTheReason) {
  collective::run_ranks(2, [](Communicator& comm) {
    const at::Tensor w = at::ones({2}).requires_grad_(true);
    const EngineOptions early{.strategy = "zero(stage=1, buddy=true)", .lanes = 0, .early_update = true};
    EXPECT_THAT(failure_of([&] { Engine(comm, {{"w", w}}, early, optim::make("sgd")); }).what, HasSubstr("early_update"));
    Engine engine(comm, {{"w", w}}, {.strategy = "zero(stage=1)", .lanes = 0}, optim::make("sgd"));
    EXPECT_THAT(failure_of([&] { engine.finish_step_alone({}); }).what, HasSubstr("had not come to its vote"));
  });
}

TEST(Buddies, OfASingleRankChangeNothing) {
  TrainCase train_case = with_buddies(3);
  train_case.rows = {7};
  const auto with = train_ranks(train_case);
  train_case.options.strategy = "all_reduce(op=sum)";
  expect_same_bits(with, train_ranks(train_case));
}

}  // namespace
}  // namespace cohort::engine
