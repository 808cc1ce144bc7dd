// What every strategy promises, for each row of the table. On the dyadic fixture (testing.h: data, rate and curvature are small dyadic
// numbers) sums are exact for a while, so equalities of algebra are equalities of bits.
#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

class StrategyLaws : public testing::TestWithParam<const StrategyRow*> {
 protected:
  const StrategyRow& row() const { return *GetParam(); }
  std::string spec() const { return std::string(row().name); }
  // With rounds that end within a few steps.
  std::string short_rounds() const {
    if (spec() == "diloco") return "diloco(h=3)";
    return spec() == "streaming_diloco" ? "streaming_diloco(h=9, fragments=3, delay=2, alpha=0.25)" : spec();
  }
};
INSTANTIATE_TEST_SUITE_P(Of, StrategyLaws, testing::ValuesIn(strategies().begin(), strategies().end()),
                         [](const auto& given) { return std::string(given.param->name); });

TEST_P(StrategyLaws, IsFoundByItsName) {
  EXPECT_EQ(make(spec())->name(), row().name);
  EXPECT_EQ(&strategy_named(row().name), &row());
}

TEST_P(StrategyLaws, DeclaresWhatGoesTogether) {
  const auto strategy = make(spec());
  const Semantics semantics = strategy->semantics();
  EXPECT_EQ(semantics.guarantee == Guarantee::step, semantics.commit_scope == Scope::world) << "a step that the world commits is whole";
  EXPECT_EQ(semantics.guarantee == Guarantee::sync_round, semantics.sync_scope == Scope::world);
  EXPECT_FALSE(semantics.drifts() && strategy->placement(Rank{0}, 2).sharded()) << "a rank that drifts holds all of its model";
  for (std::int64_t step = 1; step <= 200; ++step) {
    const SyncSchedule schedule = strategy->schedule(step);
    EXPECT_TRUE(!schedule.ends_round || schedule.exchanges_before || schedule.exchanges_after) << "what is mixed has travelled";
    EXPECT_TRUE(semantics.commit_scope != Scope::world || schedule.commit == Scope::world);
  }
}

TEST_P(StrategyLaws, AWorldOfOneTrainsAsWithoutAStrategy) {
  const int steps = 6;
  const Values plain = train({.sync = "all_reduce", .ranks = 1, .steps = steps}).models[0];
  const QuadraticRun run = train({.sync = spec(), .ranks = 1, .steps = steps});
  if (spec() == "easgd" || spec() == "eamsgd") return;  // its centre follows it, and pulls
  if (short_rounds() != spec()) return expect_near(run.models[0], plain, 0, "no round of 100 steps has ended");
  expect_near(run.models[0], plain, 1e-15);
}

TEST_P(StrategyLaws, InItsLimitItIsAllReduce) {
  if (row().limit.empty()) return;
  for (const int ranks : {1, 2, 4}) {
    const Quadratic q{.sync = "all_reduce", .ranks = ranks, .steps = 4};
    Quadratic limit = q;
    limit.sync = row().limit;
    const QuadraticRun expected = train(q), found = train(limit);
    for (int r = 0; r < ranks; ++r)
      expect_near(found.models[static_cast<std::size_t>(r)], expected.models[static_cast<std::size_t>(r)], 0,
                  spec() + " on " + std::to_string(ranks) + " ranks");
  }
}

TEST_P(StrategyLaws, RunsRepeatBitForBit) {
  const Quadratic q{.sync = short_rounds(), .ranks = 3, .steps = 9, .rate = 0.1, .curvature = 0.7, .rule = "sgd(lr=0.1, momentum=0.9)"};
  const QuadraticRun once = train(q), again = train(q);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(once.models[r], again.models[r]);
    EXPECT_EQ(once.consensus[r], again.consensus[r]);
    EXPECT_EQ(once.consensus[r], once.consensus[0]) << "the consensus is one";
  }
}

// What a checkpoint has is all there is to go on from.
TEST_P(StrategyLaws, ARunThatResumesOnAsManyRanksHasTheSameBits) {
  Quadratic q{.sync = short_rounds(), .ranks = 3, .steps = 11, .rate = 0.1, .curvature = 0.7, .rule = "sgd(lr=0.1, momentum=0.9)"};
  const QuadraticRun whole = train(q);
  for (q.resumes_after = 1; q.resumes_after <= 8; ++q.resumes_after) {
    const QuadraticRun resumed = train(q);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(resumed.models[r], whole.models[r]) << "after step " << q.resumes_after;
      EXPECT_EQ(resumed.consensus[r], whole.consensus[r]) << "after step " << q.resumes_after;
    }
  }
}

// What Communicator::moved() counts, messages of peer channels too.
TEST_P(StrategyLaws, MovesWhatItDeclares) {
  constexpr int kSteps = 200;  // whole rounds of every strategy's default
  const Quadratic q{.sync = spec() == "post_local_sgd" ? "post_local_sgd(start=0)" : spec(), .ranks = 4, .steps = kSteps, .sizes = {4096}};
  const double unit = spec() == "choco" ? sizeof(float) : 1;  // payloads are counted in bytes
  EXPECT_NEAR(train(q).moved / kSteps, unit * make(spec())->cost(4096, 4), 1) << "elements a step";
}

// Ranks that begin apart, on whole numbers. Those that meet in an anchor or a centre begin with it.
TEST_P(StrategyLaws, WithoutGradientsTheMeanStaysToTheBit) {
  const auto strategy = make(spec());
  const auto meets = [](const SlotSpec& slot) { return slot.kept && slot.share == Share::identical; };
  if (!strategy->semantics().drifts() || std::ranges::any_of(strategy->slots(), meets)) return;
  const std::string dyadic = spec() == "sma"                   ? "sma(alpha=0.25)"
                             : spec() == "dpsgd"               ? "dpsgd(graph=one_peer)"
                             : spec() == "hierarchical_gossip" ? "hierarchical_gossip(per_host=2)"
                                                               : spec();
  Quadratic q{.sync = dyadic, .ranks = 4, .steps = 5, .curvature = 0};
  q.begins = [](int rank, std::size_t element) { return 1024.0 * rank + static_cast<double>(element % 4); };
  const QuadraticRun run = train(q);
  for (std::size_t i = 0; i < run.consensus[0].size(); ++i) ASSERT_EQ(run.consensus[1][i], 1536 + static_cast<double>(i % 4)) << i;
}

TEST_P(StrategyLaws, FindsTheMinimumOfTheSum) {
  Quadratic q{.sync = short_rounds(), .ranks = 4, .steps = 1200};
  q.target = [](int rank, std::size_t element) { return 0.5 * rank + 0.125 * static_cast<double>(element % 8); };
  const QuadraticRun run = train(q);
  for (std::size_t i = 0; i < run.consensus[0].size(); ++i)
    ASSERT_NEAR(run.consensus[0][i], 0.75 + 0.125 * static_cast<double>(i % 8), 1e-3) << i;
}

}  // namespace
}  // namespace cohort::sync
