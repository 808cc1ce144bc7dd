#include <gmock/gmock.h>

#include "cohort/optim/rule/whole_testing.h"

namespace cohort::optim {
namespace {

using testing::ElementsAre;

// One matrix by the formula, in double.
struct Reference {
  std::size_t rows, columns;
  std::vector<double> w, row, column;

  void step(std::vector<double> g, double t, double lr, double decay) {
    row.resize(rows), column.resize(columns);
    const double fresh = std::pow(t, -0.8), weights = norm(w) / std::sqrt(static_cast<double>(w.size()));
    std::vector<double> row_mean(rows), column_mean(columns), u(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      row_mean[i / columns] += g[i] * g[i] / static_cast<double>(columns);
      column_mean[i % columns] += g[i] * g[i] / static_cast<double>(rows);
    }
    double mean = 0;
    for (std::size_t r = 0; r < rows; ++r) mean += (row[r] += fresh * (row_mean[r] - row[r])) / static_cast<double>(rows);
    for (std::size_t c = 0; c < columns; ++c) column[c] += fresh * (column_mean[c] - column[c]);
    for (std::size_t i = 0; i < w.size(); ++i) u[i] = g[i] / std::sqrt(row[i / columns] * column[i % columns] / mean);
    const double clip = std::max(1.0, norm(u) / std::sqrt(static_cast<double>(w.size())));
    const double rate = std::max(1e-3, weights) * std::min(lr, 1 / std::sqrt(t)) / clip;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = (1 - lr * decay) * w[i] - rate * u[i];
  }
};

template <class T>
double worst_against_formula(double decay) {
  const auto rule = make("adafactor");
  Field<T> field(*rule, TensorInfo{"m", {13, 301}, kReal<T>});
  std::mt19937 random(3);
  fill_normal(field.w, random);
  Reference reference{13, 301, {field.w.begin(), field.w.end()}, {}, {}};
  double worst = 0;
  for (std::int64_t step = 1; step <= 50; ++step) {
    fill_normal(field.g, random);
    std::vector<double> g(field.g.begin(), field.g.end());
    for (double& x : g) x *= 0.25;
    reference.step(g, static_cast<double>(step), 0.1, decay);
    field.update(*rule, {.step = step, .lr = 0.2, .grad_scale = 0.25}, {.lr_scale = 0.5, .weight_decay = decay});
    for (std::size_t i = 0; i < field.w.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(field.w[i]) - reference.w[i]) / std::max(1.0, std::abs(reference.w[i])));
  }
  return worst;
}

TEST(Adafactor, FollowsItsFormulaForFiftySteps) {
  for (const double decay : {0.0, 0.3}) {
    EXPECT_LT(worst_against_formula<float>(decay), 2e-6) << decay;
    EXPECT_LT(worst_against_formula<double>(decay), 1e-14) << decay;
  }
}

// The figures are those of torch.optim.Adafactor (2.13, double) on the tensors of whole_testing.h.
TEST(Adafactor, GivesWhatTorchGives) {
  const auto matrix = five_steps("adafactor", {3, 4}, 0.02, 0.1);
  expect_near(matrix.w, {-0.25044189153998381, 0.61510023187941998, 0.1228989308673434, -0.37036286761560594, 0.49848738118162234,
                         0.0069922392696995196, -0.4853791206042723, 0.35514415124772647, -0.1118833187131668, -0.63452663226727957,
                         0.26291524228939966, -0.25681334978215897});
  expect_near(matrix.s[0], {0.056173630951885933, 0.053718885681860624, 0.055583001523490133});
  expect_near(matrix.s[1], {0.055939173394633071, 0.049630303820004086, 0.062053527909340683, 0.053011019085671081});
  const auto vector = five_steps("adafactor", {5}, 0.01, 0);
  expect_near(vector.w, {-0.25284693027186994, 0.6211307167542387, 0.12221350784230547, -0.3741458787913442, 0.49966836188267233});
  expect_near(vector.s[0], {0.062163724757236562, 0.042286458250347617, 0.069914008152769741, 0.050330332647189835, 0.047248497236080413});
  const auto cube = five_steps("adafactor(d=1.5, beta2_decay=-0.5, eps1=1e-3, eps2=0.1)", {2, 2, 3}, 0.5, 0);
  expect_near(cube.w, {-0.43469283038486622, 0.72026801823985842, -0.066227855653404041, -0.46903469259151093, 0.39724241951012396,
                       -0.15930414857552319, -0.19811432901806625, 0.017266151176177535, 0.32770137624748091, -1.0125258066345302,
                       0.33840091232085012, -0.59022250901259177});
  expect_near(cube.s[0], {0.061401278915526804, 0.053897722013697809, 0.053821274848947449, 0.053548277213554506});
  expect_near(cube.s[1], {0.06230935760046391, 0.032668619396847315, 0.077970524396525673, 0.034156641634083884, 0.072004320992398327,
                          0.054893365467270729});
}

TEST(Adafactor, TheFactorsAreExactWhereSquaresHaveRankOne) {
  const auto rule = make("adafactor(d=1e9)");  // never clipped
  Field<double> field(*rule, TensorInfo{"m", {4, 6}, Dtype::f64}, 1.0);
  for (std::size_t i = 0; i < 24; ++i) field.g[i] = static_cast<double>(i / 6 + 1) * (i % 2 == 0 ? 0.5 : -3.0);
  const auto g = field.g;
  field.update(*rule, {.step = 1, .lr = 0.01});
  for (std::size_t i = 0; i < 24; ++i) EXPECT_NEAR(field.w[i], 1 - 0.01 * (g[i] > 0 ? 1 : -1), 1e-15) << "v is g^2: u is the sign";
}

TEST(Adafactor, NoStepIsLongerThanItsShareOfTheTensor) {
  const auto rule = make("adafactor");
  std::mt19937 random(5);
  Field<double> field(*rule, TensorInfo{"m", {40, 30}, Dtype::f64});
  fill_normal(field.w, random);
  for (std::int64_t t = 1; t <= 200; ++t) {
    fill_normal(field.g, random);
    field.g[static_cast<std::size_t>(t)] *= 1e4;
    const auto before = field.w;
    field.update(*rule, {.step = t, .lr = 0.3});
    std::vector<double> moved(before.size());
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] = field.w[i] - before[i];
    EXPECT_LE(norm(moved) / norm(before), std::min(0.3, 1 / std::sqrt(static_cast<double>(t))) * (1 + 1e-12));
  }
}

TEST(Adafactor, KeepsANumberForEachRowAndColumn) {
  const auto rule = make("adafactor");
  const auto matrix = rule->state({"m", {10, 512}});
  ASSERT_EQ(matrix.size(), 2u);
  EXPECT_EQ(matrix[0].name, "row_var");
  EXPECT_THAT(matrix[0].shape, ElementsAre(10, 1));
  EXPECT_THAT(matrix[1].shape, ElementsAre(1, 512));
  const auto filter = rule->state({"m", {8, 4, 3, 5}});
  EXPECT_THAT(filter[0].shape, ElementsAre(8, 4, 3, 1));
  EXPECT_THAT(filter[1].shape, ElementsAre(8, 4, 1, 5));
  EXPECT_THAT(rule->state({"b", {9}})[0].shape, ElementsAre(9));
  EXPECT_EQ(rule->state({"number", {}}).size(), 1u);
  EXPECT_EQ(state_per_element(*rule, {1000, 1000}), 0.002);
}

}  // namespace
}  // namespace cohort::optim
