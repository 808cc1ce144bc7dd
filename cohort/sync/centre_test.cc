// Rounds that wait for nobody: local_sgd and diloco with wait=none, easgd with async=true.
#include "cohort/sync/centre.h"

#include <fmt/format.h>

#include "cohort/sync/gate_testing.h"
#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

constexpr const char* kUnwaited[] = {"local_sgd(h=2, wait=none)", "diloco(h=2, wait=none)",
                                     "diloco(h=2, wait=none, momentum=0.5, nesterov=false)", "easgd(h=2, beta=0.5, async=true)"};

class Unwaited : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, Unwaited, testing::ValuesIn(kUnwaited), [](const auto& given) {
  std::string name;
  for (const char c : std::string(given.param))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  return name;
});

TEST_P(Unwaited, PromisesNoRoundsThatAllDecideTogether) {
  const auto strategy = make(GetParam());
  EXPECT_EQ(strategy->semantics().guarantee, Guarantee::none);
  EXPECT_EQ(strategy->semantics().sync_scope, Scope::self);
  EXPECT_TRUE(strategy->semantics().drifts());
  EXPECT_FALSE(strategy->schedule(1).ends_round);
  EXPECT_TRUE(strategy->schedule(2).ends_round);
}

TEST_P(Unwaited, MovesWhatItDeclares) {
  constexpr int kSteps = 20;
  const QuadraticRun run = train({.sync = GetParam(), .ranks = 4, .steps = kSteps, .sizes = {4096}});
  EXPECT_EQ(make(GetParam())->cost(4096, 4), 2 * 4096 * 0.75 / 2);
  EXPECT_NEAR(run.moved / kSteps, make(GetParam())->cost(4096, 4), 4) << "and two words for each owner that is asked";
}

// Ranks whose minima lie apart, in step: the centre comes to the minimum of the sum as near as ranks drift in a round, h steps.
TEST_P(Unwaited, FindsTheMinimumOfTheSum) {
  Quadratic q{.sync = GetParam(), .ranks = 4, .steps = 3000, .rate = 0.01, .curvature = 0.5, .sizes = {40}, .in_step = true};
  q.target = [](int rank, std::size_t element) { return 0.5 * rank + 0.125 * static_cast<double>(element % 8); };
  const QuadraticRun run = train(q);
  for (std::size_t i = 0; i < run.consensus[0].size(); ++i)
    ASSERT_NEAR(run.consensus[0][i], 0.75 + 0.125 * static_cast<double>(i % 8), 0.02) << i;
  for (const Values& c : run.consensus) EXPECT_EQ(c, run.consensus[0]);
}

// Rank 1 comes to its second step when the others have ended all of theirs: they meet its part of the centre all the same.
TEST_P(Unwaited, ARankThatIsLateHoldsUpNobody) {
  constexpr int kRanks = 3, kSteps = 12;
  const Quadratic q{.sync = GetParam(), .ranks = kRanks, .sizes = {90}};
  Gate others;
  std::vector<Values> at_first(kRanks), seen(kRanks);
  collective::run_ranks(kRanks, [&](collective::Communicator& comm) {
    QuadraticRank rank(q, comm);
    const auto me = static_cast<std::size_t>(comm.rank().value);
    at_first[me] = rank.parameters();
    EXPECT_TRUE(me != 1 || others.await(kRanks - 1)) << "they waited for rank 1";
    for (int step = 1; step <= kSteps; ++step) rank.step(step);
    seen[me] = rank.parameters();
    if (me != 1) others.arrive();
    comm.barrier({});
    EXPECT_EQ(rank.consensus().size(), at_first[me].size());
  });
  for (const std::size_t r : {0U, 2U}) EXPECT_NE(seen[r], at_first[r]);
}

TEST_P(Unwaited, ALostRankTakesItsPartAndOthersGoOn) {
  constexpr int kRanks = 3, kSteps = 8;
  const Quadratic q{.sync = GetParam(), .ranks = kRanks, .sizes = {90}};
  Gate gone;
  collective::run_ranks(kRanks, [&](collective::Communicator& comm) {
    auto rank = std::make_unique<QuadraticRank>(q, comm);
    rank->step(1);
    rank->step(2);
    if (comm.rank().value == 1) {
      rank.reset();
      gone.arrive();
    } else {
      EXPECT_TRUE(gone.await(1));
      for (int step = 3; step <= kSteps; ++step) rank->step(step);
      for (const double x : rank->model()) EXPECT_TRUE(std::isfinite(x));
    }
    comm.barrier({});
  });
}

TEST_P(Unwaited, WhatIsKeptIsAllThereIsToGoOnFrom) {
  Quadratic q{.sync = GetParam(), .ranks = 1, .steps = 11, .rate = 0.1, .curvature = 0.7, .rule = "sgd(lr=0.1, momentum=0.9)"};
  const QuadraticRun whole = train(q);
  for (q.resumes_after = 1; q.resumes_after <= 8; ++q.resumes_after) {
    const QuadraticRun resumed = train(q);
    EXPECT_EQ(resumed.models[0], whole.models[0]) << "after step " << q.resumes_after;
    EXPECT_EQ(resumed.consensus[0], whole.consensus[0]) << "after step " << q.resumes_after;
  }
}

// Everything that ranks have moved counts once, one n-th of it, however they came: with a gradient that is the same everywhere, h rate g of
// every round of every rank.
TEST(UnwaitedLocalSgd, TheCentreIsWhatAllHaveMovedInAnyOrder) {
  constexpr int kRanks = 4, kRounds = 5;
  for (const int slow : {-1, 0, 3}) {
    Quadratic q{.sync = "local_sgd(h=2, wait=none)", .ranks = kRanks, .rate = 0.25, .curvature = 0, .sizes = {130}};
    Gate others;
    std::vector<Values> consensus(kRanks);
    collective::run_ranks(kRanks, [&](collective::Communicator& comm) {
      QuadraticRank rank(q, comm);
      const int me = comm.rank().value;
      EXPECT_TRUE(me != slow || others.await(kRanks - 1)) << "they waited for rank " << slow;
      for (int step = 1; step <= 2 * kRounds; ++step) {
        doubles(rank.bucket().parameters())[0] += 1.0 + me;  // what a step moves
        rank.step(step);
      }
      if (me != slow) others.arrive();
      comm.barrier({});
      consensus[static_cast<std::size_t>(me)] = rank.consensus();
    });
    EXPECT_EQ(consensus[0][0], 2.0 * kRounds * (1 + 2 + 3 + 4) / kRanks) << "slow: rank " << slow;
    EXPECT_EQ(consensus[0][1], 0);
  }
}

TEST(UnwaitedEasgd, RanksAndCentreKeepTheirSumInAnyOrder) {
  for (const int ranks : {2, 5}) {
    Quadratic q{.sync = "easgd(h=1, beta=0.5, async=true)", .ranks = ranks, .steps = 7, .rate = 0, .sizes = {100}};
    q.begins = [](int rank, std::size_t element) {
      return 0.25 * static_cast<double>((element * 3 + static_cast<std::size_t>(rank) * 5) % 16);
    };
    const auto sum_of = [&](const QuadraticRun& run) {
      Values sum = run.consensus[0];
      for (const Values& model : run.models)
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += model[i];
      return sum;
    };
    const QuadraticRun after = train(q);
    q.steps = 0;
    const QuadraticRun before = train(q);
    EXPECT_NE(after.models, before.models);
    EXPECT_LT(disagreement(after.models), disagreement(before.models));
    expect_near(sum_of(after), sum_of(before), 1e-13, std::to_string(ranks) + " ranks");
  }
}

// n meetings in a row from the same centre are a step of the outer SGD: of one rank every round is.
TEST(UnwaitedDiLoCo, OfOneRankItIsDiLoCo) {
  for (const char* rest : {"lr=0.5, momentum=0.9", "lr=0.5, momentum=0.9, nesterov=false", "lr=1, momentum=0"}) {
    Quadratic q{.sync = fmt::format("diloco(h=3, {})", rest), .ranks = 1, .steps = 12, .rate = 0.1};
    const Values expected = train(q).models[0];
    q.sync = fmt::format("diloco(h=3, {}, wait=none)", rest);
    expect_near(train(q).models[0], expected, 1e-13, rest);
  }
}

// Two ranks, one round each after another; by hand, in double.
TEST(UnwaitedDiLoCo, MomentumMovesAtEveryNthMeeting) {
  constexpr double kLr = 0.5, kBeta = 0.5;
  std::vector<double> moved{1, 3, 2}, seen;
  const Quadratic q{.sync = "diloco(h=1, lr=0.5, momentum=0.5, wait=none)", .ranks = 2, .curvature = 0, .sizes = {1}};
  collective::run_ranks(2, [&](collective::Communicator& comm) {
    QuadraticRank rank(q, comm);
    for (std::size_t turn = 0; turn < moved.size(); ++turn) {
      if (comm.rank().value == static_cast<int>(turn % 2)) {
        doubles(rank.bucket().parameters())[0] += moved[turn];
        rank.step(static_cast<std::int64_t>(turn) + 1);
        seen.push_back(rank.parameters()[0]);
      }
      comm.barrier({});
    }
  });
  const double c1 = kLr * 1 / 2;     // the first of two
  const double m = (1.0 + 3.0) / 2;  // the second moves the momentum
  const double c2 = c1 + kLr * 3 / 2 + kLr * kBeta * m;
  const double c3 = c2 + kLr * 2 / 2;  // half of a cycle
  EXPECT_THAT(seen, testing::ElementsAre(c1, c2, c3));
}

TEST(Waiting, IsAWordOfItsOwn) {
  for (const char* spec : {"local_sgd(wait=some)", "local_sgd(patience=0s)", "easgd(async=perhaps)"})
    EXPECT_THROW(make(spec), Failure) << spec;
}

}  // namespace
}  // namespace cohort::sync
