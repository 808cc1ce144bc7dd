#include "cohort/optim/matrix_root.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cohort/base/symmetric_eigen.h"

namespace cohort::optim {
namespace {

using Numbers = std::vector<double>;

constexpr std::size_t kSize = 16;

struct Made {
  Numbers matrix, root;  // root: of the matrix with a ridge of eps times its largest eigenvalue
};

// 16 eigenvalues from 1 down to 1 / condition, evenly in their logarithms, along random directions.
Made with_condition(double condition, int p, double eps) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  Numbers drawn(kSize * kSize);
  for (std::size_t i = 0; i < kSize; ++i)
    for (std::size_t j = 0; j <= i; ++j) drawn[i * kSize + j] = normal(random);
  const Numbers vectors = symmetric_eigen(drawn, kSize).vectors;
  Made made{Numbers(kSize * kSize), Numbers(kSize * kSize)};
  for (std::size_t k = 0; k < kSize; ++k) {
    const double value = std::pow(condition, -static_cast<double>(k) / (kSize - 1));
    for (std::size_t i = 0; i < made.matrix.size(); ++i) {
      const double direction = vectors[k * kSize + i / kSize] * vectors[k * kSize + i % kSize];
      made.matrix[i] += value * direction;
      made.root[i] += std::pow(value + eps, -1.0 / p) * direction;
    }
  }
  return made;
}

double relative_difference(const Numbers& a, const Numbers& b) {
  double off = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) off += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
  return std::sqrt(off / size);
}

TEST(MatrixRoot, IsTheClosedFormWithinAMillionthForConditionsUpToAMillion) {
  for (const double condition : {1e2, 1e4, 1e6})
    for (const int p : {1, 2, 3, 4, 6, 8}) {
      const Made made = with_condition(condition, p, 1e-6);
      const auto eigen = inverse_root(made.matrix, kSize, {.p = p});
      const auto newton = inverse_root(made.matrix, kSize, {.p = p, .by = RootBy::newton});
      ASSERT_FALSE(eigen.empty() || newton.empty()) << p << " " << condition;
      EXPECT_LT(relative_difference(eigen, made.root), 1e-9) << p << " " << condition;
      EXPECT_LT(relative_difference(newton, made.root), 1e-6) << p << " " << condition;
    }
}

// Counted once in exact arithmetic, with a ridge of 1e-6.
TEST(MatrixRoot, NewtonNeedsAsManyIterationsAsItShould) {
  const int wanted[3][3] = {{10, 15, 20}, {9, 13, 18}, {8, 12, 16}};
  for (const int row : {0, 1, 2})
    for (const int column : {0, 1, 2}) {
      const int p = 2 << row;
      const Made made = with_condition(std::pow(100, column + 1), p, 1e-6);
      const auto error_after = [&](int iterations) {
        const auto root = inverse_root(made.matrix, kSize, {.p = p, .by = RootBy::newton, .iterations = iterations});
        return root.empty() ? 1 : relative_difference(root, made.root);
      };
      EXPECT_LT(error_after(wanted[row][column]), 1e-6) << p << " " << column;
      EXPECT_GT(error_after(wanted[row][column] - 3), 1e-6) << p << " " << column;
    }
}

TEST(MatrixRoot, TakesSingularMatricesByTheirRidge) {
  for (const auto by : {RootBy::eigen, RootBy::newton}) {
    Numbers one(kSize * kSize);  // of rank 1
    for (std::size_t i = 0; i < one.size(); ++i) one[i] = static_cast<double>((i / kSize + 1) * (i % kSize + 1));
    const auto root = inverse_root(one, kSize, {.p = 2, .by = by});
    ASSERT_FALSE(root.empty());
    double along = 0, squares = 0;
    for (std::size_t i = 0; i < kSize; ++i) squares += static_cast<double>((i + 1) * (i + 1));
    for (std::size_t i = 0; i < root.size(); ++i) along += root[i] * static_cast<double>((i / kSize + 1) * (i % kSize + 1)) / squares;
    EXPECT_NEAR(along * std::sqrt(squares), 1, 1e-5) << "of the only direction that is there";
    const auto nothing = inverse_root(Numbers(kSize * kSize), kSize, {.p = 4, .by = by});
    ASSERT_FALSE(nothing.empty());
    EXPECT_TRUE(std::isfinite(nothing[0]));
  }
  EXPECT_NEAR(inverse_root({16}, 1, {.p = 4, .eps = 0})[0], 0.5, 1e-14);
}

TEST(MatrixRoot, ThereIsNoneOfWhatIsNotFiniteOrDoesNotConverge) {
  Numbers broken(kSize * kSize, 1);
  broken[3] = std::nan("");
  for (const auto by : {RootBy::eigen, RootBy::newton}) EXPECT_TRUE(inverse_root(broken, kSize, {.by = by}).empty());
  const Made made = with_condition(1e6, 4, 1e-6);
  EXPECT_TRUE(inverse_root(made.matrix, kSize, {.p = 4, .eps = 1e-12, .by = RootBy::newton, .iterations = 1}).empty());
}

}  // namespace
}  // namespace cohort::optim
