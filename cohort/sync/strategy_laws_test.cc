// What every strategy promises, for each row of the table. On the dyadic fixture (testing.h: data, rate and curvature are small dyadic
// numbers) sums are exact for a while, so equalities of algebra are equalities of bits.
#include <algorithm>

#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

using Rows = std::vector<const StrategyRow*>;

Rows rows_that(const std::function<bool(const StrategyRow&)>& promise) {
  Rows all;
  for (const StrategyRow* row : strategies())
    if (promise(*row)) all.push_back(row);
  return all;
}

class RowTest : public testing::TestWithParam<const StrategyRow*> {
 protected:
  const StrategyRow& row() const { return *GetParam(); }
  std::string spec() const { return std::string(law_spec(row())); }
};
const auto by_name = [](const auto& given) { return std::string(given.param->name); };

// When a strategy has become what its semantics say: steps before, and steps of a round.
struct Rounds {
  int before = 0, steps = 1;
};
constexpr int kLongest = 1000;
Rounds rounds_of(const Strategy& strategy) {
  Rounds rounds;
  while (strategy.schedule(rounds.before + 1).commit != strategy.semantics().commit_scope) ++rounds.before;
  if (!strategy.semantics().drifts()) return rounds;
  for (; rounds.steps <= kLongest; ++rounds.steps)
    if (strategy.schedule(rounds.before + rounds.steps).ends_round) return rounds;
  return {rounds.before, 1};  // there are none
}

// Ranks that begin apart and do not learn: mixing alone. Sums of these values are exact.
Quadratic mixing_alone(const std::string& spec, int ranks, int rounds) {
  const Rounds of = rounds_of(*make(spec));
  Quadratic q{.sync = spec, .ranks = ranks, .steps = of.before + rounds * of.steps, .rate = 0, .sizes = {5, 60}};
  q.begins = [](int rank, std::size_t element) {
    return 0.25 * static_cast<double>((element * element * 3 + static_cast<std::size_t>(rank) * (element + 5)) % 16);
  };
  return q;
}

class StrategyLaws : public RowTest {};
INSTANTIATE_TEST_SUITE_P(Of, StrategyLaws, testing::ValuesIn(strategies().begin(), strategies().end()), by_name);

TEST_P(StrategyLaws, IsFoundByItsName) {
  EXPECT_EQ(make(row().name)->name(), row().name);
  EXPECT_EQ(make(spec())->name(), row().name);
  EXPECT_EQ(&strategy_named(row().name), &row());
}

TEST_P(StrategyLaws, DeclaresWhatGoesTogether) {
  for (const std::string_view spelling : {row().name, law_spec(row())}) {
    const auto strategy = make(spelling);
    const Semantics semantics = strategy->semantics();
    EXPECT_EQ(semantics.guarantee == Guarantee::step, semantics.commit_scope == Scope::world) << "a step that the world commits is whole";
    EXPECT_EQ(semantics.guarantee == Guarantee::sync_round, semantics.sync_scope == Scope::world);
    EXPECT_FALSE(semantics.drifts() && strategy->placement(Rank{0}, 2).sharded()) << "a rank that drifts holds all of its model";
    EXPECT_TRUE(semantics.drifts() || (row().conserves == Conserves::nothing && row().contraction == nullptr)) << "nothing is mixed";
    for (std::int64_t step = 1; step <= 200; ++step) {
      const SyncSchedule schedule = strategy->schedule(step);
      EXPECT_TRUE(!schedule.ends_round || schedule.exchanges_before || schedule.exchanges_after) << "what is mixed has travelled";
      EXPECT_TRUE(semantics.commit_scope != Scope::world || schedule.commit == Scope::world);
    }
  }
  EXPECT_LE(rounds_of(*make(spec())).steps, 4) << "short rounds, so that laws see some";
}

class Repeating : public RowTest {};
INSTANTIATE_TEST_SUITE_P(Of, Repeating, testing::ValuesIn(rows_that([](const auto& row) { return row.repeats; })), by_name);

TEST_P(Repeating, RunsRepeatBitForBit) {
  const Quadratic q{.sync = spec(), .ranks = 3, .steps = 9, .rate = 0.1, .curvature = 0.7, .rule = "sgd(lr=0.1, momentum=0.9)"};
  const QuadraticRun once = train(q), again = train(q);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(once.models[r], again.models[r]);
    EXPECT_EQ(once.consensus[r], again.consensus[r]);
    EXPECT_EQ(once.consensus[r], once.consensus[0]) << "the consensus is one";
  }
}

// What a checkpoint has is all there is to go on from.
TEST_P(Repeating, ARunThatResumesOnAsManyRanksHasTheSameBits) {
  Quadratic q{.sync = spec(), .ranks = 3, .steps = 11, .rate = 0.1, .curvature = 0.7, .rule = "sgd(lr=0.1, momentum=0.9)"};
  const QuadraticRun whole = train(q);
  for (q.resumes_after = 1; q.resumes_after <= 8; ++q.resumes_after) {
    const QuadraticRun resumed = train(q);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(resumed.models[r], whole.models[r]) << "after step " << q.resumes_after;
      EXPECT_EQ(resumed.consensus[r], whole.consensus[r]) << "after step " << q.resumes_after;
    }
  }
}

// Collectives and point-to-point messages.
TEST_P(Repeating, MovesWhatItDeclares) {
  for (const std::string& spelling : {std::string(row().name), spec()}) {
    const int steps = spelling == row().name ? 200 : 72;  // whole rounds of every default; of every short one
    Quadratic q{.sync = spelling, .ranks = 4, .steps = rounds_of(*make(spelling)).before, .sizes = {4096}};
    const double before = train(q).moved;
    q.steps += steps;
    EXPECT_NEAR((train(q).moved - before) / steps, row().counts * make(spelling)->cost(4096, 4), 1) << spelling << ": elements a step";
  }
}

TEST_P(StrategyLaws, FindsTheMinimumOfTheSum) {
  Quadratic q{.sync = spec(), .ranks = 4, .steps = 1200, .in_step = !row().repeats};
  q.target = [](int rank, std::size_t element) { return 0.5 * rank + 0.125 * static_cast<double>(element % 8); };
  const QuadraticRun run = train(q);
  for (std::size_t i = 0; i < run.consensus[0].size(); ++i)
    ASSERT_NEAR(run.consensus[0][i], 0.75 + 0.125 * static_cast<double>(i % 8), 1e-3) << i;
}

class PlainAlone : public RowTest {};
INSTANTIATE_TEST_SUITE_P(Of, PlainAlone, testing::ValuesIn(rows_that([](const auto& row) { return row.plain_alone; })), by_name);

TEST_P(PlainAlone, AWorldOfOneTrainsAsWithoutAStrategy) {
  Quadratic q{.sync = "all_reduce", .ranks = 1, .steps = 9};
  const Values plain = train(q).models[0];
  q.sync = spec();
  expect_near(train(q).models[0], plain, 1e-15);
}

class Limits : public RowTest {};
INSTANTIATE_TEST_SUITE_P(Of, Limits, testing::ValuesIn(rows_that([](const auto& row) { return !row.limit.empty(); })), by_name);

TEST_P(Limits, InItsLimitItIsAllReduce) {
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

class Conserving : public RowTest {
 protected:
  Values conserved(const QuadraticRun& run) const {
    Values sum = run.consensus[0];
    if (row().conserves == Conserves::ranks_and_centre)
      for (const Values& model : run.models)
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += model[i];
    return sum;
  }
};
INSTANTIATE_TEST_SUITE_P(Of, Conserving, testing::ValuesIn(rows_that([](const auto& row) { return row.conserves != Conserves::nothing; })),
                         by_name);

// Of two ranks to the last bit: every weight is a dyadic number then.
TEST_P(Conserving, MixingAloneKeepsWhatItSays) {
  for (const int ranks : {2, 5}) {
    Quadratic q = mixing_alone(spec(), ranks, 3);
    const QuadraticRun after = train(q);
    q.steps = 0;
    const QuadraticRun before = train(q);
    EXPECT_NE(after.models, before.models) << "models were mixed";
    expect_near(conserved(after), conserved(before), ranks == 2 ? 0 : 1e-14, std::to_string(ranks) + " ranks");
  }
}

class Contracting : public RowTest {};
INSTANTIATE_TEST_SUITE_P(Of, Contracting, testing::ValuesIn(rows_that([](const auto& row) { return row.contraction != nullptr; })),
                         by_name);

// At most what the row declares is left after every round; and no much smaller number would be true.
TEST_P(Contracting, DisagreementShrinksAsDeclared) {
  constexpr int kRounds = 8;
  for (const int ranks : {2, 4, 6}) {
    const double factor = row().contraction(ranks);
    ASSERT_LT(factor, 1);
    Quadratic q = mixing_alone(spec(), ranks, kRounds);
    const Rounds rounds = rounds_of(*make(spec()));
    const QuadraticRun run = train(q);
    q.steps = 0;
    const double first = disagreement(train(q).models);
    double left = first;
    for (int round = 1; round <= kRounds; ++round) {
      const double before = left;
      left = disagreement(models_after(run, rounds.before + round * rounds.steps));
      EXPECT_LE(left, factor * before + 1e-14 * first) << ranks << " ranks, round " << round;
      if (round < kRounds) continue;
      EXPECT_GE(left, 0.95 * factor * before) << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace cohort::sync
