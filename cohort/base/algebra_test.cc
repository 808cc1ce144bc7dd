#include "cohort/base/algebra.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "cohort/base/failure_of.h"
#include "cohort/base/isa.h"

namespace cohort {
namespace {

template <class T>
std::vector<T> noise(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<T> values(count);
  for (T& v : values) v = static_cast<T>(normal(random));
  return values;
}

// By the definition, in the order that algebra.h promises.
template <class T>
void multiply_plainly(T alpha, Matrix<const T> a, Matrix<const T> b, T beta, Matrix<T> c) {
  for (std::size_t i = 0; i < c.rows; ++i)
    for (std::size_t j = 0; j < c.columns; ++j) {
      T sum = 0;
      for (std::size_t k = 0; k < a.columns; ++k) sum += a.at(i, k) * b.at(k, j);
      c.at(i, j) = beta == 0 ? alpha * sum : alpha * sum + beta * c.at(i, j);
    }
}

class Threaded : public Algebra {
 public:
  void run(std::size_t jobs, const std::function<void(std::size_t)>& job) const override {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 3; ++t)
      threads.emplace_back([=, &job] {
        for (std::size_t i = t; i < jobs; i += 3) job(i);
      });
  }
};

class Products : public testing::Test {
 protected:
  ~Products() override { use_isa(runnable_isas().back()); }
};

template <class T>
void expect_the_bits_of_the_definition(const Algebra& algebra) {
  for (const auto& [m, k, n] : {std::array<std::size_t, 3>{1, 1, 1}, {6, 16, 16}, {7, 3, 17}, {13, 40, 5}, {25, 0, 9}, {2, 300, 33}}) {
    const auto a = noise<T>(m * k, 1), b = noise<T>(k * n, 2), before = noise<T>(m * n, 3);
    for (const bool turned : {false, true})
      for (const T beta : {T{0}, T{-0.75}}) {
        const Matrix<const T> left = turned ? Matrix<const T>(a.data(), k, m).transposed() : Matrix<const T>(a.data(), m, k);
        const Matrix<const T> right = turned ? Matrix<const T>(b.data(), n, k).transposed() : Matrix<const T>(b.data(), k, n);
        auto wanted = before, got = before;
        multiply_plainly<T>(T{1.25}, left, right, beta, {wanted.data(), m, n});
        algebra.multiply<T>(T{1.25}, left, right, beta, {got.data(), m, n});
        EXPECT_EQ(got, wanted) << m << " " << k << " " << n << (turned ? " turned" : "");
      }
  }
}

TEST_F(Products, HaveTheBitsOfTheDefinitionOnEveryInstructionSetAndAnyNumberOfThreads) {
  for (const Isa isa : runnable_isas()) {
    use_isa(isa);
    expect_the_bits_of_the_definition<float>(Algebra{});
    expect_the_bits_of_the_definition<double>(Algebra{});
    expect_the_bits_of_the_definition<float>(Threaded{});
  }
}

TEST_F(Products, OfSymmetricMatricesHaveTheSameBitsFromHalfOfTheWork) {
  for (const std::size_t m : {1, 5, 16, 17, 40, 100}) {
    const auto x = noise<float>(m * 30, 4);
    const Matrix<const float> rows(x.data(), m, 30);
    std::vector<float> a(m * m), whole(m * m), half(m * m, std::nanf(""));
    Algebra{}.multiply_symmetric<float>(1, rows, rows.transposed(), 0, {half.data(), m, m});
    Algebra{}.multiply<float>(1, rows, rows.transposed(), 0, {whole.data(), m, m});
    EXPECT_EQ(half, whole) << m;
    a = half;
    const Matrix<const float> square(a.data(), m, m);
    Threaded{}.multiply_symmetric<float>(2, square, square, -0.5F, {half.data(), m, m});
    Algebra{}.multiply<float>(2, square, square, -0.5F, {whole.data(), m, m});
    EXPECT_EQ(half, whole) << m;
  }
}

TEST_F(Products, DoNotReadWhatTheResultHeldWhenItCountsForNothing) {
  const float one[]{2}, two[]{3};
  float out[]{std::nanf("")};
  Algebra{}.multiply<float>(1, {one, 1, 1}, {two, 1, 1}, 0, {out, 1, 1});
  EXPECT_EQ(out[0], 6);
}

TEST_F(Products, RefuseSizesThatDoNotFit) {
  double m[6]{};
  EXPECT_THAT(failure_of([&] {
                Algebra{}.multiply<double>(1, {m, 2, 3}, {m, 2, 3}, 0, {m, 2, 3});
              }).what,
              testing::HasSubstr("2 x 3 and 2 x 3 into 2 x 3"));
}

}  // namespace
}  // namespace cohort
