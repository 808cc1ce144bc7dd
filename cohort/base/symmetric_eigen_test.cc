#include "cohort/base/symmetric_eigen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "cohort/base/isa.h"

namespace cohort {
namespace {

using Numbers = std::vector<double>;

Numbers symmetric(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Numbers a(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) a[i * n + j] = a[j * n + i] = normal(random);
  return a;
}

void expect_decomposes(const Numbers& a, std::size_t n, double tolerance) {
  const auto e = symmetric_eigen(a, n);
  ASSERT_TRUE(e.converged);
  double most = 0;
  for (const double x : e.values) most = std::max(most, std::abs(x));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0, product = 0;
      for (std::size_t k = 0; k < n; ++k) {
        sum += e.values[k] * e.vectors[k * n + i] * e.vectors[k * n + j];
        product += e.vectors[i * n + k] * e.vectors[j * n + k];
      }
      EXPECT_NEAR(sum, a[i * n + j], tolerance * most) << i << " " << j;
      EXPECT_NEAR(product, i == j ? 1 : 0, tolerance) << i << " " << j;
    }
}

TEST(SymmetricEigen, DecomposesMatricesOfAnySize) {
  for (const std::size_t n : {0, 1, 2, 3, 4, 7, 20, 65}) {
    SCOPED_TRACE(n);
    expect_decomposes(symmetric(n, static_cast<std::uint32_t>(n)), n, 1e-13);
  }
}

TEST(SymmetricEigen, KnowsTheEigenvaluesOfAStringOfBeads) {
  constexpr std::size_t kBeads = 30;  // 2 beside -1: 2 - 2 cos(pi k / (n + 1))
  Numbers a(kBeads * kBeads);
  for (std::size_t i = 0; i < kBeads; ++i) {
    a[i * kBeads + i] = 2;
    if (i > 0) a[i * kBeads + i - 1] = -1;  // above the diagonal nothing is read
  }
  auto e = symmetric_eigen(a, kBeads);
  std::ranges::sort(e.values);
  for (std::size_t k = 0; k < kBeads; ++k)
    EXPECT_NEAR(e.values[k], 2 - 2 * std::cos(std::numbers::pi * static_cast<double>(k + 1) / (kBeads + 1)), 1e-14);
}

TEST(SymmetricEigen, TakesEqualEigenvaluesLowRankAndEveryScale) {
  constexpr std::size_t kSize = 12;
  Numbers zero(kSize * kSize), one = zero, rank = zero;
  for (std::size_t i = 0; i < kSize; ++i) one[i * kSize + i] = 3;
  for (std::size_t i = 0; i < kSize; ++i)
    for (std::size_t j = 0; j < kSize; ++j) rank[i * kSize + j] = static_cast<double>((i + 1) * (j + 1));
  for (const Numbers& a : {zero, one, rank}) expect_decomposes(a, kSize, 1e-14);
  for (const double scale : {1e-200, 1e-30, 1e30, 1e200}) {
    Numbers a = symmetric(kSize, 5);
    for (double& x : a) x *= scale;
    expect_decomposes(a, kSize, 1e-13);
  }
}

TEST(SymmetricEigen, HasTheSameBitsOnEveryInstructionSet) {
  const Numbers a = symmetric(77, 9);
  use_isa(Isa::plain);
  const auto plain = symmetric_eigen(a, 77);
  for (const Isa isa : runnable_isas()) {
    use_isa(isa);
    const auto other = symmetric_eigen(a, 77);
    EXPECT_EQ(plain.values, other.values);
    EXPECT_EQ(plain.vectors, other.vectors);
  }
  use_isa(runnable_isas().back());
}

TEST(SymmetricEigen, SaysWhenNumbersAreNotFinite) {
  for (const double broken : {std::nan(""), static_cast<double>(INFINITY)}) {
    Numbers a = symmetric(6, 1);
    a[2 * 6 + 1] = broken;
    EXPECT_FALSE(symmetric_eigen(a, 6).converged);
  }
}

}  // namespace
}  // namespace cohort
