#include "cohort/codec/matrix.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "cohort/base/isa.h"

namespace cohort::codec {
namespace {

class Matrices : public testing::Test {
 protected:
  ~Matrices() override { use_isa(runnable_isas().back()); }
};

std::vector<float> random_matrix(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> m(count);
  for (float& v : m) v = static_cast<float>(std::normal_distribution<double>()(random));
  return m;
}

Columns random_columns(std::size_t height, std::size_t count, unsigned seed) {
  Columns c{height, count};
  const auto values = random_matrix(height * count, seed);
  std::copy(values.begin(), values.end(), c.values.begin());
  return c;
}

double inner(const Columns& c, std::size_t k, std::size_t l) {
  double sum = 0;
  for (std::size_t i = 0; i < c.height; ++i) sum += c.at(k)[i] * c.at(l)[i];
  return sum;
}

TEST_F(Matrices, HaveTheProductsOfTheFormulaOnEveryInstructionSetWithTheSameBits) {
  using Sizes = std::tuple<std::size_t, std::size_t, std::size_t>;
  for (const auto& [rows, width, count] : {Sizes{1, 1, 1}, {7, 1030, 3}, {65, 19, 2}, {16, 16, 5}}) {
    const auto m = random_matrix(rows * width, 1);
    const Columns right = random_columns(width, count, 2), left = random_columns(rows, count, 3);
    use_isa(Isa::plain);
    const Columns p = product(m.data(), rows, right), q = transposed_product(m.data(), width, left);
    std::vector<float> outer(rows * width);
    outer_product(left, right, 0, outer.size(), outer.data());
    for (std::size_t k = 0; k < count; ++k) {
      for (std::size_t i = 0; i < rows; ++i) {
        double sum = 0;
        for (std::size_t j = 0; j < width; ++j) sum += static_cast<double>(m[i * width + j]) * right.at(k)[j];
        ASSERT_NEAR(p.at(k)[i], sum, 1e-11 * static_cast<double>(width));
      }
      for (std::size_t j = 0; j < width; ++j) {
        double sum = 0;
        for (std::size_t i = 0; i < rows; ++i) sum += static_cast<double>(m[i * width + j]) * left.at(k)[i];
        ASSERT_NEAR(q.at(k)[j], sum, 1e-11 * static_cast<double>(rows));
      }
    }
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < width; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < count; ++k) sum += left.at(k)[i] * right.at(k)[j];
        ASSERT_EQ(outer[i * width + j], static_cast<float>(sum));
      }
    for (const Isa isa : runnable_isas()) {
      use_isa(isa);
      EXPECT_EQ(product(m.data(), rows, right).values, p.values) << name_of(isa);
      EXPECT_EQ(transposed_product(m.data(), width, left).values, q.values) << name_of(isa);
      std::vector<float> again(outer.size());
      outer_product(left, right, 0, again.size(), again.data());
      EXPECT_EQ(again, outer) << name_of(isa);
    }
  }
}

TEST_F(Matrices, OfProductsHaveTheSameBitsInAnyPieces) {
  const Columns p = random_columns(13, 4, 1), q = random_columns(37, 4, 2);
  std::vector<float> all(std::size_t{13} * 37), pieces(all.size());
  outer_product(p, q, 0, all.size(), all.data());
  for (std::size_t first = 0; first < all.size(); first += 29)
    outer_product(p, q, first, std::min<std::size_t>(29, all.size() - first), pieces.data() + first);
  EXPECT_EQ(all, pieces);
}

TEST_F(Matrices, HaveOrthonormalColumnsEvenIfTheseNearlyDepend) {
  Columns c = random_columns(50, 4, 4);
  for (std::size_t i = 0; i < 50; ++i) c.at(2)[i] = c.at(0)[i] + 1e-7 * c.at(2)[i];  // once would leave an error of 1e-9
  orthonormalize(c);
  for (std::size_t k = 0; k < 4; ++k)
    for (std::size_t l = 0; l < 4; ++l) EXPECT_NEAR(inner(c, k, l), k == l ? 1 : 0, 1e-14) << k << " " << l;
}

TEST_F(Matrices, NormalizeOneColumnByItsOwnLength) {
  Columns c{3, 1, {3, 0, 4}};
  orthonormalize(c);
  EXPECT_THAT(c.values, testing::ElementsAre(0.6, 0, 0.8));
}

TEST_F(Matrices, LeaveZerosOfColumnsThatSayNothingNewOrDrawThem) {
  const Columns start{3, 3, {1, 2, 2, 2, 4, 4, 0, 0, 0}};
  Columns zeros = start, drawn = start;
  orthonormalize(zeros);
  EXPECT_EQ(inner(zeros, 0, 0), 1);
  for (std::size_t i = 3; i < 9; ++i) EXPECT_EQ(zeros.values[i], 0) << i;
  const Random random(1, 2);
  orthonormalize(drawn, &random);
  for (std::size_t k = 0; k < 3; ++k)
    for (std::size_t l = 0; l < 3; ++l) EXPECT_NEAR(inner(drawn, k, l), k == l ? 1 : 0, 1e-14);
}

TEST_F(Matrices, SpreadWhatIsNotFinite) {
  for (const double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
    Columns c{2, 2, {1, bad, 3, 4}};
    orthonormalize(c);
    EXPECT_FALSE(std::isfinite(c.at(0)[1]));
    EXPECT_FALSE(std::isfinite(c.at(1)[0] + c.at(1)[1]));
  }
}

}  // namespace
}  // namespace cohort::codec
