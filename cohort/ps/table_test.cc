#include "cohort/ps/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>
#include <span>

#include "cohort/base/bracket.h"
#include "cohort/base/failure_of.h"
#include "cohort/collective/types.h"
#include "cohort/ps/rows.h"

namespace cohort::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::unique_ptr<DenseStore> store_of(std::size_t count, int workers, const std::string& rule) {
  return std::make_unique<DenseStore>(
      DenseSpec{.name = "t", .dtype = Dtype::f64, .count = count, .parts = {{.count = count}}, .rule = rule}, workers);
}

// A table with one double, and workers that talk to it without a network.
struct OneNumber {
  OneNumber(const std::string& clock, int workers, const std::string& rule, bool average = false)
      : store(store_of(1, workers, rule)),
        values(static_cast<double*>(store->values().data)),
        raw(store.get()),
        table(make_gate(clock), workers, std::move(store), average),
        seq(static_cast<std::size_t>(workers)) {}
  void push(int worker, double gradient, const Update& update) {
    auto& number = seq[static_cast<std::size_t>(worker)];
    const std::int64_t clock = table.clock().at(worker);
    EXPECT_EQ(table.push({worker, clock, ++number}), Admission::fresh);
    *static_cast<double*>(raw->staging(worker).data) = gradient;
    raw->mark_staged(worker);
    EXPECT_EQ(table.mark({worker, clock, ++number}, update), Admission::fresh);
  }
  std::unique_ptr<DenseStore> store;
  double* values;
  DenseStore* raw;
  Table table;
  std::vector<std::uint64_t> seq;
};

TEST(Table, CountsEveryPushOnceWhateverComesTwiceOrEarly) {
  OneNumber one("tap", 1, "sgd(lr=1)");
  EXPECT_EQ(one.table.push({0, 0, 2}), Admission::early);
  EXPECT_EQ(one.table.mark({0, 0, 2}, {.lr = 1}), Admission::early);
  one.push(0, -1, {.lr = 1});
  EXPECT_EQ(one.table.push({0, 0, 1}), Admission::repeated);
  EXPECT_EQ(one.table.mark({0, 0, 2}, {.lr = 1}), Admission::repeated);
  EXPECT_EQ(*one.values, 1);
  EXPECT_EQ(one.table.clock().at(0), 1);
  EXPECT_EQ(failure_of([&] { one.table.push({0, 0, 3}); }).kind, Kind::usage) << "of a clock that has ended";
}

TEST(Table, APushThatIsMarkedNotToCountChangesNothingAndEndsItsClock) {
  OneNumber one("tap", 1, "sgd(lr=1)");
  one.push(0, NAN, {.go = false, .lr = 1});
  EXPECT_EQ(*one.values, 0);
  EXPECT_EQ(one.table.clock().at(0), 1);
}

// The order is that of the workers and the rounding that of the bracket, whoever comes first.
TEST(Table, OfBulkSynchronousClocksAppliesTheMeanInTheOrderOfTheWorkers) {
  const std::vector<double> gradients{0.1, 1e17, -1e17, 0.3, 7.7};
  const auto bracket = [&](const auto& self, std::size_t lo, std::size_t n) -> double {
    if (n == 1) return gradients[lo];
    const std::size_t left = bracket_split(n);
    return self(self, lo, left) + self(self, lo + left, n - left);
  };
  const double mean = bracket(bracket, 0, 5) / 5;
  for (const std::vector<int>& order : {std::vector{0, 1, 2, 3, 4}, std::vector{4, 2, 0, 3, 1}}) {
    OneNumber one("bsp", 5, "sgd(lr=1)", true);
    for (const int worker : order) {
      EXPECT_EQ(*one.values, 0) << "before all have marked the clock";
      one.push(worker, gradients[static_cast<std::size_t>(worker)], {.lr = 1});
    }
    EXPECT_EQ(*one.values, -mean);
    EXPECT_THAT(one.table.staleness(), ElementsAre(Pair(0, 5)));
  }
}

TEST(Table, OfBulkSynchronousClocksCallsTheStepOffWhenOneWorkerDoes) {
  OneNumber one("bsp", 2, "sgd(lr=1)", true);
  one.push(0, 1, {.lr = 1});
  one.push(1, NAN, {.go = false, .lr = 1});
  EXPECT_EQ(*one.values, 0);
  EXPECT_TRUE(one.table.opens(0, 1)) << "the clock has ended all the same";
}

TEST(Table, TakesScalesThatDiffer) {
  OneNumber one("bsp", 2, "sgd(lr=1)", false);
  one.push(0, 1, {.lr = 1, .scale = 0.5});
  one.push(1, 1, {.lr = 1, .scale = 0.25});
  EXPECT_EQ(*one.values, -0.75);
}

TEST(Table, AWorkerWaitsWhenItReadsAndNotWhenItEndsAClock) {
  OneNumber one("ssp(2)", 2, "sgd(lr=1)");
  for (int c = 0; c < 10; ++c) {
    EXPECT_EQ(one.table.opens(0, c), c <= 2) << "the other is at clock 0";
    one.push(0, -1, {.lr = 1});
  }
  EXPECT_EQ(*one.values, 10);
}

TEST(Table, AReadHasTheReadersOwnUpdates) {
  OneNumber one("tap", 2, "sgd(lr=1)");
  EXPECT_FALSE(one.table.opens(0, 1)) << "its mark is on its way";
  one.push(0, -1, {.lr = 1});
  EXPECT_TRUE(one.table.opens(0, 1));
}

TEST(Table, OfEqualWorkersWithoutABoundIsStaleByTheNumberOfTheOthers) {
  for (const int n : {1, 2, 5, 16}) {
    OneNumber one("tap", n, "sgd(lr=1)");
    for (int c = 0; c < 50; ++c)
      for (int w = 0; w < n; ++w) {
        if (c > 0) one.push(w, 0, {.lr = 1});
        one.table.read(w);
      }
    Histogram expected{{n - 1, 48 * n}};  // worker w's first update comes behind those of w others
    for (int w = 0; w < n; ++w) ++expected[w];
    EXPECT_EQ(one.table.staleness(), expected) << n;
  }
}

// x <- x - eta h x(tau updates ago) is stable iff eta h < 2 sin(pi / (2 (2 tau + 1))): tau + 1 workers in turn, without a bound.
TEST(Table, DescentWithStaleGradientsIsStableUpToTheKnownRate) {
  for (const int tau : {0, 1, 2, 4, 8}) {
    const double bound = 2 * std::sin(std::numbers::pi / (2 * (2 * tau + 1)));
    for (const double factor : {0.99, 1.01}) {
      OneNumber one("tap", tau + 1, "sgd(lr=1)");
      *one.values = 1;
      std::vector<double> seen(static_cast<std::size_t>(tau) + 1, 1);
      double late = 0;
      constexpr int kSteps = 40000;
      for (int i = 0; i < kSteps && std::abs(*one.values) < 1e12; ++i) {
        const int worker = i % (tau + 1);
        one.push(worker, seen[static_cast<std::size_t>(worker)], {.lr = factor * bound});
        one.table.read(worker);
        seen[static_cast<std::size_t>(worker)] = *one.values;
        if (i >= kSteps - 100) late = std::max(late, std::abs(*one.values));
      }
      if (factor < 1) {
        EXPECT_LT(late, 1e-3) << "tau " << tau;
      } else {
        EXPECT_GT(std::abs(*one.values), 1e3) << "tau " << tau;
      }
      EXPECT_EQ(one.table.staleness().rbegin()->first, tau);
    }
  }
}

TEST(Table, AWorkerThatLeavesIsWaitedForNoMoreAndWhatItMarkedCounts) {
  OneNumber one("bsp", 3, "sgd(lr=1)");
  one.push(0, -1, {.lr = 1});
  one.push(1, -10, {.lr = 1});
  one.table.leave(1);
  EXPECT_EQ(*one.values, 0);
  one.push(2, -100, {.lr = 1});
  EXPECT_EQ(*one.values, 111);
  one.push(0, -1, {.lr = 1});
  one.push(2, -1, {.lr = 1});
  EXPECT_EQ(*one.values, 113);
}

TEST(Table, AWorkerThatJoinsBeginsWhereTheSlowestIs) {
  OneNumber one("ssp(1)", 2, "sgd(lr=1)");
  for (int c = 0; c < 3; ++c) one.push(0, 0, {.lr = 1});
  one.push(1, 0, {.lr = 1});
  one.table.join(2);
  one.seq.push_back(0);
  EXPECT_EQ(one.table.clock().at(2), 1);
  one.push(2, -5, {.lr = 1});
  EXPECT_EQ(*one.values, 5);
}

// Rules are those of the optimizers, state and all: one worker with adagrad on the server is adagrad.
TEST(Table, OnTheServerEveryRuleOfElementsIsWhatItIsAlone) {
  for (const char* spec : {"adagrad(lr=0.1)", "adam(lr=0.1)", "sgd(lr=0.1, momentum=0.9)"}) {
    OneNumber one("tap", 1, spec);
    const auto rule = optim::make(spec);
    double x = 0, g = 0;
    std::vector<double> state;
    std::vector<void*> places;
    for (std::size_t k = 0; k < rule->state_names().size(); ++k) state.push_back(rule->initial_state(k));
    for (double& s : state) places.push_back(&s);
    for (int t = 1; t <= 20; ++t) {
      g = x - 3 + 0.1 * t;
      one.push(0, g, {.lr = 0.1});
      rule->update({.param = &x, .grad = &g, .state = places, .count = 1, .dtype = Dtype::f64}, {.step = t, .lr = 0.1});
      ASSERT_EQ(*one.values, x) << spec << ", update " << t;
    }
  }
}

TEST(Table, RefusesRulesThatNeedMoreThanElements) {
  EXPECT_THAT(failure_of([] { store_of(4, 1, "lamb"); }).what, HasSubstr("whole tensors"));
  EXPECT_THAT(failure_of([] { store_of(4, 1, "muon"); }).what, HasSubstr("whole tensors"));
}

TEST(DenseStore, UpdatesEveryPartWithItsOwnRateAndLeavesOutWhatIsMissing) {
  DenseStore store({.name = "t",
                    .dtype = Dtype::f32,
                    .count = 6,
                    .parts = {{.first = 0, .count = 2}, {.first = 2, .count = 2, .lr_scale = 10}, {.first = 5, .count = 1}},
                    .rule = "sgd(lr=1)"},
                   2);
  for (const int worker : {0, 1}) {
    const Piece staged = store.staging(worker);
    std::fill_n(static_cast<float*>(staged.data), 6, 1.0F);
    store.mark_staged(worker);
  }
  const Update all{.lr = 1}, some{.lr = 1, .missing = {true, false, true}}, none{.lr = 1, .missing = {true, true, true}};
  const Contribution both[] = {{0, &all}, {1, &some}};
  store.apply(both, 0.5, 1);
  const auto* const x = static_cast<const float*>(store.values().data);
  EXPECT_THAT(std::vector(x, x + 6), ElementsAre(-1, -1, -10, -10, 0, -1));
  const Contribution nobody[] = {{0, &none}, {1, &none}};
  store.apply(nobody, 0.5, 2);
  EXPECT_THAT(std::vector(x, x + 6), ElementsAre(-1, -1, -10, -10, 0, -1));
}

// Against a table of all rows, whatever ids and however many of them.
TEST(RowStore, IsADenseTableOfTheRowsThatWerePushed) {
  constexpr std::size_t kRows = 50, kWidth = 3;
  RowStore rows({.name = "r", .width = kWidth, .rule = "sgd(lr=1)"}, 2);
  std::vector<double> naive(kRows * kWidth);
  std::uint64_t state = 1;
  const auto random = [&](std::uint64_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % below;
  };
  for (int step = 1; step <= 100; ++step) {
    for (const int worker : {0, 1}) {
      std::vector<std::uint64_t> ids;
      std::vector<float> values;
      for (std::size_t i = random(64) % 8; i > 0; --i) {
        ids.push_back(random(64) % kRows);
        for (std::size_t k = 0; k < kWidth; ++k) {
          values.push_back(static_cast<float>(random(64) % 16) / 4);
          naive[ids.back() * kWidth + k] -= 0.25 * (worker == 0 ? 1 : 0.5) * static_cast<double>(values.back());
        }
        ids.back() *= 1'000'003;
      }
      rows.stage(worker, ids, values);
    }
    const Update first{.lr = 0.5}, second{.lr = 0.5, .scale = 0.5};
    const Contribution both[] = {{0, &first}, {1, &second}};
    rows.apply(both, 0.5, step);
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    std::vector<float> row(kWidth);
    const std::uint64_t id[] = {r * 1'000'003};
    rows.read(id, row);
    for (std::size_t k = 0; k < kWidth; ++k) EXPECT_EQ(row[k], naive[r * kWidth + k]) << r;
  }
  EXPECT_LE(rows.rows(), kRows);
}

TEST(RowStore, RefusesRowsBeyondItsMemoryAndKeepsThoseItHas) {
  RowStore rows({.name = "r", .width = 4, .rule = "adagrad", .most_bytes = 2 * 4 * 2 * sizeof(float)}, 1);
  const std::vector<float> values(4, 1);
  const Update update{.lr = 1};
  const Contribution one[] = {{0, &update}};
  for (std::uint64_t id : {7, 8}) {
    rows.stage(0, std::span(&id, 1), values);
    rows.apply(one, 1, 1);
  }
  const std::uint64_t third = 9;
  rows.stage(0, std::span(&third, 1), values);
  EXPECT_THAT(failure_of([&] { rows.apply(one, 1, 2); }).what, HasSubstr("more servers"));
  EXPECT_THAT(rows.ids(), ElementsAre(7, 8));
}

}  // namespace
}  // namespace cohort::ps
