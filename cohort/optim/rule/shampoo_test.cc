#include <gmock/gmock.h>

#include <numbers>

#include "cohort/base/failure_of.h"
#include "cohort/optim/matrix_root.h"
#include "cohort/optim/rule/shampoo_blocks.h"
#include "cohort/optim/side_testing.h"
#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

using testing::ElementsAre;
using Numbers = std::vector<double>;

// A matrix by the formula, in double, in one block; roots are those of matrix_root.h.
struct Reference {
  std::size_t rows, columns;
  std::string graft;
  double beta1 = 0.9, beta2 = 0.95, graft_beta2 = 0.99;
  int every = 3, delay = 2;
  Numbers w{}, b{}, s{}, l{}, r{}, left{}, right{}, old_l{}, old_r{};

  void step(const Numbers& g, int t, double lr, double decay) {
    l.resize(rows * rows), r.resize(columns * columns), b.resize(w.size()), s.resize(w.size());
    for (std::size_t i = 0; i < rows * rows; ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < columns; ++k) sum += g[i / rows * columns + k] * g[i % rows * columns + k];
      l[i] = beta2 * l[i] + (1 - beta2) * sum;
    }
    for (std::size_t i = 0; i < columns * columns; ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < rows; ++k) sum += g[k * columns + i / columns] * g[k * columns + i % columns];
      r[i] = beta2 * r[i] + (1 - beta2) * sum;
    }
    if (t > delay && (t - delay) % every == 0) left = inverse_root(old_l, rows, {}), right = inverse_root(old_r, columns, {});
    if (t % every == 0) old_l = l, old_r = r;
    const Numbers u = direction(g, grafted(g, t));
    for (std::size_t i = 0; i < w.size(); ++i) {
      b[i] = beta1 * b[i] + (1 - beta1) * u[i];
      w[i] = (1 - lr * decay) * w[i] - lr * b[i];
    }
  }
  Numbers grafted(const Numbers& g, int t) {
    Numbers d = g;
    for (std::size_t i = 0; i < g.size(); ++i) {
      s[i] = graft == "adagrad" ? s[i] + g[i] * g[i] : graft_beta2 * s[i] + (1 - graft_beta2) * g[i] * g[i];
      const double c = graft == "adam" ? 1 - std::pow(graft_beta2, t) : 1;
      if (graft != "sgd" && graft != "none") d[i] = g[i] / (std::sqrt(s[i] / c) + 1e-8);
    }
    return d;
  }
  Numbers direction(const Numbers& g, const Numbers& d) const {
    if (left.empty()) return d;
    Numbers p(g.size());
    for (std::size_t i = 0; i < p.size(); ++i)
      for (std::size_t j = 0; j < rows; ++j)
        for (std::size_t k = 0; k < columns; ++k)
          p[i] += left[i / columns * rows + j] * g[j * columns + k] * right[k * columns + i % columns];
    const double factor = graft == "none" ? 1 : norm(d) / norm(p);
    for (double& x : p) x *= factor;
    return p;
  }
};

template <class T>
double worst_against(const std::string& graft, double decay) {
  const auto rule = make("shampoo(every=3, delay=2, beta2=0.95, graft_beta2=0.99, graft=" + graft + ")");
  Field<T> field(*rule, TensorInfo{"m", {6, 9}, kReal<T>});
  std::mt19937 random(3);
  fill_normal(field.w, random);
  Reference reference{.rows = 6, .columns = 9, .graft = graft, .w = {field.w.begin(), field.w.end()}};
  double worst = 0;
  for (int step = 1; step <= 30; ++step) {
    fill_normal(field.g, random);
    Numbers g(field.g.begin(), field.g.end());
    for (double& x : g) x *= 0.25;
    reference.step(g, step, 0.01, decay);
    field.update(*rule, {.step = step, .lr = 0.02, .grad_scale = 0.25}, {.lr_scale = 0.5, .weight_decay = decay});
    for (std::size_t i = 0; i < field.w.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(field.w[i]) - reference.w[i]) / std::max(1.0, std::abs(reference.w[i])));
  }
  return worst;
}

TEST(Shampoo, FollowsItsFormulaForThirtySteps) {
  for (const std::string graft : {"none", "sgd", "adagrad", "rmsprop", "adam"})
    for (const double decay : {0.0, 0.3}) {
      EXPECT_LT(worst_against<float>(graft, decay), 2e-5) << graft;
      EXPECT_LT(worst_against<double>(graft, decay), 1e-11) << graft;
    }
}

TEST(Shampoo, BlocksOfOneNumberAreAdagrad) {
  const auto adagrad = make("adagrad(eps=0)");
  for (const cohort::Shape& shape : {cohort::Shape{5, 7}, cohort::Shape{2, 3, 4}, cohort::Shape{11}, cohort::Shape{}}) {
    const auto rule = make("shampoo(block=1, beta1=0, beta2=1, eps=0, every=1, delay=0, graft=none)");
    Field<double> one(*rule, TensorInfo{"m", shape, Dtype::f64}, 1), other(*adagrad, TensorInfo{"m", shape, Dtype::f64}, 1);
    std::mt19937 random(1);
    for (std::int64_t t = 1; t <= 20; ++t) {
      fill_normal(one.g, random);
      other.g = one.g;
      one.update(*rule, {.step = t, .lr = 0.1});
      other.update(*adagrad, {.step = t, .lr = 0.1});
    }
    for (std::size_t i = 0; i < one.w.size(); ++i) EXPECT_NEAR(one.w[i], other.w[i], 1e-12);
  }
}

TEST(Shampoo, EveryBlocksStepIsAsLongAsThatOfItsGraft) {
  const auto rule = make("shampoo(block=4, beta1=0, every=1, delay=0, graft=sgd)");
  Field<double> field(*rule, TensorInfo{"m", {6, 10}, Dtype::f64});
  std::mt19937 random(6);
  for (std::int64_t t = 1; t <= 5; ++t) {
    fill_normal(field.g, random);
    const Numbers before = field.w;
    field.update(*rule, {.step = t, .lr = 1});
    double turned = 0;
    for (const ShampooBlock& b : ShampooBlocks(field.info.shape, 4).all) {
      double moved = 0, gradient = 0, along = 0;
      for (std::size_t r = b.row; r < b.row + b.rows; ++r)
        for (std::size_t c = b.column; c < b.column + b.columns; ++c) {
          const double step = before[r * 10 + c] - field.w[r * 10 + c], g = field.g[r * 10 + c];
          moved += step * step, gradient += g * g, along += step * g;
        }
      EXPECT_NEAR(moved, gradient, 1e-12 * gradient);
      turned = std::max(turned, 1 - along / gradient);
    }
    EXPECT_GT(turned, 0.005) << "and goes elsewhere";
  }
}

TEST(Shampoo, ARootThatFailsLeavesTheOneBeforeInItsPlace) {
  for (const char* spec : {"shampoo(block=3, every=1, delay=0)", "shampoo(block=3, every=1, delay=0, root=newton)"}) {
    const auto rule = make(spec);
    Field<double> field(*rule, TensorInfo{"m", {3, 6}, Dtype::f64});
    std::mt19937 random(6);
    fill_normal(field.g, random);
    field.update(*rule, {.step = 1, .lr = 0.1});
    const Numbers roots = field.s[1];
    field.s[0][1] = std::nan("");  // in the first block's rows
    fill_normal(field.g, random);
    field.update(*rule, {.step = 2, .lr = 0.1});
    for (std::size_t i = 0; i < roots.size(); ++i) EXPECT_EQ(field.s[1][i] == roots[i], i < 9) << i << " " << spec;
    EXPECT_THAT(field.w, testing::Each(testing::Truly([](double x) { return std::isfinite(x); })));
  }
}

// |A^(1/2) (W - target) A^(1/2)|^2 / 2 after 300 steps, where A has curvatures from 1 to 0.01 along turned axes.
double ill_conditioned_loss(const std::string& spec, double lr) {
  constexpr std::size_t kSize = 8;
  const auto rule = make(spec);
  Field<double> field(*rule, TensorInfo{"m", {kSize, kSize}, Dtype::f64});
  Numbers a(kSize * kSize), target(a.size()), off(a.size()), half(a.size());
  std::mt19937 random(3);
  fill_normal(target, random);
  const auto axis = [](std::size_t i, std::size_t j) {
    return std::sqrt(2.0 / 9) * std::sin(std::numbers::pi * static_cast<double>((i + 1) * (j + 1)) / 9);
  };
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t k = 0; k < kSize; ++k) a[i] += std::pow(10, -static_cast<double>(k) / 3.5) * axis(i / kSize, k) * axis(i % kSize, k);
  double loss = 0;
  for (std::int64_t t = 1; t <= 300; ++t) {
    for (std::size_t i = 0; i < off.size(); ++i) off[i] = field.w[i] - target[i];
    const Matrix<double> m(a.data(), kSize, kSize), h(half.data(), kSize, kSize);
    Algebra{}.multiply<double>(1, m, {off.data(), kSize, kSize}, 0, h);
    Algebra{}.multiply<double>(1, h, m, 0, {field.g.data(), kSize, kSize});
    loss = 0;
    for (std::size_t i = 0; i < off.size(); ++i) loss += off[i] * field.g[i] / 2;
    field.update(*rule, {.step = t, .lr = lr * (1 - static_cast<double>(t) / 301)});
  }
  return loss;
}

TEST(Shampoo, OnABadlyConditionedMatrixItIsFarAheadOfAdam) {
  const auto best = [](const std::string& spec) {
    double least = INFINITY;
    for (const double lr : {0.03, 0.1, 0.3, 1.0}) least = std::min(least, ill_conditioned_loss(spec, lr));
    return least;
  };
  EXPECT_LT(best("shampoo(every=5, delay=2)") * 100, best("adam"));
}

// Steps 1 .. 14 of two tensors; side: what prepares them; again_at: from this step on by a rule that knows nothing but the state.
Numbers trained(const std::string& spec, TestSide* side, std::int64_t again_at = 0) {
  auto rule = make(spec);
  std::vector<Field<double>> fields;
  fields.emplace_back(*rule, TensorInfo{"a", {9, 14}, Dtype::f64}, 1.0);
  fields.emplace_back(*rule, TensorInfo{"b", {6}, Dtype::f64}, 1.0);
  std::mt19937 random(5);
  for (std::int64_t t = 1; t <= 14; ++t) {
    if (t == again_at) rule = make(spec);
    std::vector<std::vector<void*>> states(2);
    if (side != nullptr) {
      side->own.clear();
      for (std::size_t k = 0; k < 2; ++k) side->own.push_back(fields[k].slice(0, fields[k].w.size(), {}, states[k]));
      side->info.step = t;
      rule->prepare(*side);
    }
    for (auto& field : fields) fill_normal(field.g, random);
    if (t == 9) continue;  // called off
    for (auto& field : fields) field.update(*rule, {.step = t, .lr = 0.05});
  }
  Numbers all;
  for (auto& field : fields) all.insert(all.end(), field.w.begin(), field.w.end());
  return all;
}

TEST(Shampoo, RootsInTheBackgroundAndOfOtherRanksChangeNoBit) {
  for (const int delay : {0, 1, 2, 4}) {
    const std::string spec = "shampoo(block=5, every=4, delay=" + std::to_string(delay) + ")";
    const Numbers alone = trained(spec, nullptr);
    for (const std::int64_t again : {5, 6, 9, 10}) EXPECT_EQ(trained(spec, nullptr, again), alone) << spec << again;
    for (const bool replicated : {false, true})
      for (const int ranks : {1, 2, 3}) {
        RanksTogether together(ranks);
        std::vector<Numbers> ended(static_cast<std::size_t>(ranks));
        std::vector<int> jobs(static_cast<std::size_t>(ranks));
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < ranks; ++rank)
          threads.emplace_back([&, rank] {
            TestSide side(together, rank, replicated);
            ended[static_cast<std::size_t>(rank)] = trained(spec, &side, 6);
            jobs[static_cast<std::size_t>(rank)] = side.jobs_run;
          });
        threads.clear();
        for (const Numbers& w : ended) EXPECT_EQ(w, alone) << spec << ", " << ranks << " ranks";
        const int squares = 6 * 2 + 2, uses = delay == 4 ? 2 : 3;  // at steps 4, 8 and 12, each with the delay
        int all = 0;
        for (const int n : jobs) all += n;
        EXPECT_EQ(all, replicated && ranks > 1 && delay > 0 ? squares * uses : 0) << "each by one rank";
      }
  }
}

TEST(Shampoo, CutsTensorsIntoBlocksWithASquareForEachAxis) {
  const ShampooBlocks blocks(cohort::Shape{5, 2, 4}, 4);  // 5 x 8
  ASSERT_EQ(blocks.all.size(), 4u);
  EXPECT_EQ(blocks.all[3].row, 4u);
  EXPECT_EQ(blocks.all[3].rows, 1u);
  EXPECT_EQ(blocks.numbers, 2 * (16 + 16) + 2 * (1 + 16u));
  EXPECT_EQ(ShampooBlocks(cohort::Shape{10}, 4).numbers, 16 + 16 + 4u);
  EXPECT_EQ(ShampooBlocks(cohort::Shape{}, 4).numbers, 1u);
  EXPECT_THAT(make("shampoo")->state({"m", {300, 200}})[0].shape, ElementsAre(ShampooBlocks(cohort::Shape{300, 200}, 128).numbers));
  EXPECT_THAT(make("shampoo")->state_names(), ElementsAre("statistics", "roots", "snapshot", "exp_avg_sq", "momentum_buffer"));
  EXPECT_THAT(make("shampoo(delay=0, beta1=0, graft=sgd)")->state_names(), ElementsAre("statistics", "roots"));
}

TEST(Shampoo, RefusesADelayLongerThanThePeriod) {
  EXPECT_THAT(failure_of([] { make("shampoo(every=10, delay=11)"); }).what, testing::HasSubstr("delay 11 is longer than every 10"));
}

}  // namespace
}  // namespace cohort::optim
