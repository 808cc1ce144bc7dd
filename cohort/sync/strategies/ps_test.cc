#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

class PsExact : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, PsExact, testing::Values("ps", "ps(clock=ssp(0))", "ps(clock=bsp, servers=1)", "ps(servers=2)"),
                         [](const auto& given) { return "clock" + std::to_string(given.index); });

// With any rule and data that round: servers add and update as the ranks would.
TEST_P(PsExact, IsAllReduceBitForBit) {
  for (const char* rule : {"sgd(lr=0.1, momentum=0.9, nesterov=true)", "adam(lr=0.1)", "adagrad(lr=0.1)"})
    for (const int ranks : {2, 3, 5}) {
      Quadratic q{.sync = "all_reduce", .ranks = ranks, .steps = 12, .rate = 0.1, .curvature = 0.7, .rule = rule};
      const QuadraticRun expected = train(q);
      q.sync = GetParam();
      const QuadraticRun found = train(q);
      for (std::size_t r = 0; r < expected.models.size(); ++r) {
        EXPECT_EQ(found.after[r], expected.after[r]) << rule << " on " << ranks << " ranks";
        EXPECT_EQ(found.consensus[r], expected.models[r]);
      }
    }
}

// x <- x - eta h (x - b), in whatever order the ranks' updates come: all of them have arrived when the job stands still.
TEST(Ps, OfAsynchronousClocksFindsTheMinimumAndEndsWithOneModel) {
  for (const char* clock : {"ssp(1)", "ssp_push(2)", "bounded_delay(2)", "tap"}) {
    Quadratic q{.sync = std::string("ps(clock=") + clock + ")", .ranks = 3, .steps = 400, .rate = 0.2};
    q.target = [](int, std::size_t element) { return 0.125 * static_cast<double>(element % 8); };
    const QuadraticRun run = train(q);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(run.consensus[r], run.consensus[0]) << clock;
      for (std::size_t i = 0; i < run.consensus[r].size(); ++i)
        ASSERT_NEAR(run.consensus[r][i], 0.125 * static_cast<double>(i % 8), 1e-6) << clock;
    }
  }
}

// One rank is far slower: the others may be as far ahead as the clock says, and are.
TEST(Ps, ARankReadsNothingStalerThanItsClockSays) {
  for (const auto& [clock, most] : {std::pair{"bsp", 0}, std::pair{"ssp(1)", 1}, std::pair{"ssp(3)", 3}, std::pair{"ssp_push(3)", 3}}) {
    std::vector<std::int64_t> stalest(3);
    collective::run_ranks(3, [&](collective::Communicator& comm) {
      const Quadratic q{.sync = std::string("ps(clock=") + clock + ")", .ranks = 3};
      QuadraticRank rank(q, comm);
      for (int step = 1; step <= 30; ++step) {
        for (int i = 0; comm.rank().value == 2 && i < 100; ++i) std::this_thread::yield();
        rank.step(step);
      }
      stalest[static_cast<std::size_t>(comm.rank().value)] = rank.strategy().staleness()->most;
    });
    EXPECT_LE(*std::ranges::max_element(stalest), most) << clock;
  }
}

TEST(Ps, TakesParametersThatCameFromElsewhere) {
  collective::run_ranks(3, [](collective::Communicator& comm) {
    const Quadratic q{.sync = "ps(clock=tap)", .ranks = 3, .rate = 0};
    QuadraticRank rank(q, comm);
    rank.step(1);
    rank.settle();
    fill(rank.bucket().parameters(), 5);
    rank.strategy().adopt(rank.bucket());
    rank.step(2);
    for (const double x : rank.model()) ASSERT_EQ(x, 5);
  });
}

TEST(Ps, SaysWhatItsClockPromises) {
  EXPECT_EQ(make("ps")->semantics().identical, Scope::world);
  EXPECT_EQ(make("ps(clock=ssp(0))")->semantics().identical, Scope::world);
  EXPECT_EQ(make("ps(clock=ssp(3))")->semantics().identical, Scope::self);
  EXPECT_EQ(make("ps(clock=ssp(3))")->semantics().stale, 3);
  EXPECT_EQ(make("ps(clock=tap)")->semantics().stale, Semantics::kUnbounded);
  EXPECT_THAT(make("ps")->refusal_of(*optim::make("lamb")), testing::HasSubstr("whole tensors"));
  EXPECT_EQ(make("ps")->refusal_of(*optim::make("adamw")), "");
  EXPECT_THAT(make("ps")->refusal_of(*optim::make("ema(of=adamw)")), testing::HasSubstr("would lie on the servers"));
}

TEST(Ps, RefusesMoreServersThanRanks) {
  const Quadratic q{.sync = "ps(servers=3)", .ranks = 2};
  try {
    train(q);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), testing::HasSubstr("3 parameter servers on 2 ranks"));
  }
}

}  // namespace
}  // namespace cohort::sync
