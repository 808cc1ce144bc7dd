#include "cohort/base/slowdown.h"
#include "cohort/sync/gate_testing.h"
#include "cohort/sync/request_service.h"
#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

Quadratic apart(int ranks, int steps) {
  Quadratic q{.sync = "ad_psgd", .ranks = ranks, .steps = steps, .rate = 0, .sizes = {70}};
  q.begins = [](int rank, std::size_t element) { return 8.0 * rank + static_cast<double>(element % 3); };
  return q;
}

TEST(AdPsgd, BothOfAPairTakeTheMean) {
  const QuadraticRun run = train(apart(2, 1));
  for (std::size_t i = 0; i < 70; ++i) ASSERT_EQ(run.models[0][i], 4.0 + static_cast<double>(i % 3));
  EXPECT_EQ(run.models[0], run.models[1]);
}

TEST(AdPsgd, WithoutGradientsTheMeanStaysAndRanksComeToAgree) {
  Quadratic q = apart(7, 60);
  q.in_step = true;  // else a rank may be through its steps before another begins
  const QuadraticRun run = train(q);
  const Values mean = mean_of(run.models);
  for (std::size_t i = 0; i < mean.size(); ++i) ASSERT_NEAR(mean[i], 24.0 + static_cast<double>(i % 3), 1e-12);
  EXPECT_LT(disagreement(run.models), 1e-3);
}

// Every rank steps once, at the model that it has when all have mixed: the mean is then that of plain SGD.
TEST(AdPsgd, InStepTheMeanOfQuadraticsIsThatOfAllReduce) {
  for (const int ranks : {2, 5}) {
    const auto found = train({.sync = "ad_psgd", .ranks = ranks, .steps = 20, .rate = 0.1, .in_step = true});
    const auto expected = train({.sync = "all_reduce", .ranks = ranks, .steps = 20, .rate = 0.1});
    expect_near(mean_of(found.models), expected.models[0], 1e-12);
  }
}

TEST(AdPsgd, MovesAtMostWhatItDeclaresAndThreeWordsARequest) {
  constexpr int kSteps = 50;
  const QuadraticRun run = train({.sync = "ad_psgd", .ranks = 4, .steps = kSteps, .sizes = {4096}});
  const double declared = make("ad_psgd")->cost(4096, 4);
  EXPECT_EQ(declared, 4096) << "two of four ranks ask, and two models move each time";
  EXPECT_LE(run.moved / kSteps, declared + 2);
  EXPECT_GT(run.moved / kSteps, declared / 2) << "what is sent moves also where it is refused";
}

TEST(AdPsgd, AHundredThousandRandomPairingsEnd) {
  constexpr int kRanks = 8, kSteps = 25000;  // four of them ask in every step
  Quadratic q = apart(kRanks, kSteps);
  q.sizes = {1};
  const QuadraticRun run = train(q);
  EXPECT_NEAR(mean_of(run.models)[0], 28, 1e-9);
  EXPECT_LT(disagreement(run.models), 1e-9);
}

// Whether it asks or answers: the others have ended all their steps before it begins its second.
TEST(AdPsgd, ARankThatComputesForLongHoldsUpNobody) {
  for (const int slow : {0, 1}) {
    constexpr int kRanks = 4, kSteps = 30;
    const Quadratic q = apart(kRanks, kSteps);
    Gate others;
    std::vector<Values> models(kRanks);
    collective::run_ranks(kRanks, [&](collective::Communicator& comm) {
      QuadraticRank rank(q, comm);
      const int me = comm.rank().value;
      rank.step(1);
      EXPECT_TRUE(me != slow || others.await(kRanks - 1)) << "they waited for rank " << slow;
      for (int step = 2; step <= kSteps; ++step) rank.step(step);
      if (me != slow) others.arrive();
      comm.barrier({});
      models[static_cast<std::size_t>(me)] = rank.model();
    });
    EXPECT_NEAR(mean_of(models)[0], 12, 1e-12) << "and what they mixed into it meanwhile counts";
  }
}

// Of 5 ranks 1 and 3 answer. One of them goes, or one that asks.
TEST(AdPsgd, ALostRankFailsItsOwnExchangesOnly) {
  for (const int lost : {1, 2}) {
    constexpr int kRanks = 5, kSteps = 40;
    const Quadratic q = apart(kRanks, kSteps);
    Gate gone;
    std::vector<Values> models(kRanks);
    collective::run_ranks(kRanks, [&](collective::Communicator& comm) {
      const int me = comm.rank().value;
      auto rank = std::make_unique<QuadraticRank>(q, comm);
      rank->step(1);
      if (me == lost) {
        rank.reset();
        gone.arrive();
      } else {
        EXPECT_TRUE(gone.await(1));
      }
      for (int step = 2; step <= kSteps; ++step) {  // side by side: whoever was through before others begin would meet none of them
        if (rank) rank->step(step);
        comm.barrier({});
      }
      if (rank) models[static_cast<std::size_t>(me)] = rank->model();
    });
    std::erase_if(models, [](const Values& m) { return m.empty(); });
    EXPECT_LT(disagreement(models), 1e-2 * disagreement({{0.0}, {32.0}})) << "the four go on to agree";
  }
}

TEST(AdPsgd, AModelThatIsNotFiniteIsRefused) {
  constexpr int kRanks = 4;
  Quadratic q = apart(kRanks, 1);
  std::vector<Values> models(kRanks);
  q.begins = [](int rank, std::size_t) { return rank == 2 ? std::nan("") : 1.0 * rank; };
  collective::run_ranks(kRanks, [&](collective::Communicator& comm) {
    QuadraticRank rank(q, comm);
    for (int step = 1; step <= 10; ++step) rank.step(step);
    comm.barrier({});
    models[static_cast<std::size_t>(comm.rank().value)] = rank.model();
  });
  for (const std::size_t r : {0U, 1U, 3U}) EXPECT_TRUE(std::isfinite(models[r][0])) << "rank " << r;
  EXPECT_TRUE(std::isnan(models[2][0]));
}

// Between settle() and the next step parameters are this rank's own, and whoever asks is refused.
TEST(AdPsgd, WhatIsReadAndWrittenBetweenStepsIsNotMixedMeanwhile) {
  const Quadratic q = apart(2, 1);
  collective::run_ranks(2, [&](collective::Communicator& comm) {
    QuadraticRank rank(q, comm);
    rank.step(1);
    comm.barrier({});
    rank.model();
    comm.barrier({});
    if (comm.rank().value == 0) {
      rank.step(2);
      EXPECT_EQ(rank.model()[0], 4) << "its partner refused";
    }
    comm.barrier({});
    EXPECT_EQ(rank.model()[0], 4);
    doubles(rank.bucket().parameters())[0] = 10.0 + comm.rank().value;  // as a loaded checkpoint would
    comm.barrier({});
    if (comm.rank().value == 1) rank.step(2);
    comm.barrier({});
    if (comm.rank().value == 0) rank.step(3);
    comm.barrier({});
    EXPECT_EQ(rank.model()[0], 10.5) << "what was written is what is mixed";
  });
}

// exchange_models() runs while backward reads the parameters. The partner's model is 8 everywhere, and it answers when it is told to.
TEST(AdPsgd, ALateAnswerChangesParametersOnlyBehindBackward) {
  Quadratic q = apart(2, 1);
  q.sync = "ad_psgd(patience=0.001s)";
  Gate may_answer, answered;
  collective::run_ranks(2, [&](collective::Communicator& comm) {
    std::optional<RequestService> partner;
    std::unique_ptr<Bucket> theirs;
    if (comm.rank().value == 1) {  // as QuadraticRank opens, with a service of its own
      theirs =
          std::make_unique<Bucket>(0, std::vector<Member>{{.name = "t0", .shape = {70}}}, Dtype::f64, comm, Placement{.ranks = 2, .me = 1});
      theirs->allocate_parameters(comm);
      for (const SlotSpec& slot : make(q.sync)->slots()) {
        theirs->open_slot(slot.name, &comm, slot.per_tensor);
        comm.broadcast(theirs->slot(slot.name), Rank{0});
      }
      const auto answer = [&](std::uint32_t, const Piece& values) {
        if (!may_answer.await(1)) return false;
        fill(values, 8);
        answered.arrive();
        return true;
      };
      partner.emplace(comm.channel(), std::vector<Rank>{Rank{0}}, std::vector<RequestService::Form>{{theirs->count(), Dtype::f64}}, answer,
                      Seconds{60});
      comm.barrier({});
      EXPECT_TRUE(answered.await(1));
      comm.barrier({});
      return comm.barrier({});
    }
    QuadraticRank rank(q, comm);
    rank.step(1);
    const Values own = rank.parameters();
    EXPECT_EQ(own[0], 0) << "it went on with its own model";
    may_answer.arrive();
    comm.barrier({});
    comm.barrier({});
    const Deadline deadline = Deadline::in(Seconds{60} * slowdown());
    for (std::int64_t step = 2; rank.parameters() == own && !deadline.passed(); ++step) {
      rank.begin();
      rank.strategy().exchange_models(rank.bucket(), {.comm = &comm, .step = {.seed = kSeed, .step = step}, .number = step});
      EXPECT_EQ(rank.parameters(), own) << "backward reads them, in step " << step;
      rank.strategy().mix_models(rank.bucket(), {.number = step});
    }
    EXPECT_EQ(rank.parameters(), Values(70, 8.0));
    comm.barrier({});
  });
}

TEST(AdPsgd, WhoIsAskedKeepsItsParametersUntilItMixes) {
  const Quadratic q = apart(2, 1);
  collective::run_ranks(2, [&](collective::Communicator& comm) {
    QuadraticRank rank(q, comm);
    const bool asked = comm.rank().value == 1;
    const Values own = rank.parameters();
    if (asked) {
      rank.begin();
      rank.strategy().exchange_models(rank.bucket(), {.comm = &comm});
    }
    comm.barrier({});
    if (!asked) rank.step(1);
    comm.barrier({});
    if (asked) {
      EXPECT_EQ(rank.parameters(), own) << "its backward reads them";
      rank.strategy().mix_models(rank.bucket(), {});
    }
    EXPECT_EQ(rank.parameters()[0], 4);
    comm.barrier({});
  });
}

}  // namespace
}  // namespace cohort::sync
