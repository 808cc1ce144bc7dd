#include "cohort/optim/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace cohort::optim {
namespace {

std::vector<double> spread(std::size_t count) {  // over 600 binary orders of magnitude
  std::mt19937_64 random(3);
  std::vector<double> numbers(count);
  for (double& x : numbers) x = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 600) - 350);
  return numbers;
}

double sum_of(const std::vector<double>& numbers) {
  ExactSum sum;
  for (const double x : numbers) sum.add(x);
  return sum.value();
}

TEST(ExactSum, OfWholeNumbersIsExactWhereDoublesForget) {
  EXPECT_EQ(sum_of({}), 0);
  EXPECT_EQ(sum_of({1e30, 1, 1e-30}), 1e30);
  EXPECT_EQ(sum_of(std::vector<double>(1000, 0.1)), 100) << "adding one by one gives 99.9999999999986";
  std::vector<double> ones(4096, 1);
  ones.push_back(0x1p53);
  EXPECT_EQ(sum_of(ones), 0x1p53 + 4096);
}

TEST(ExactSum, GivesBackEverySingleNumber) {
  for (const double x : {0.0, 1.0, 0.1, 3e300, std::numeric_limits<double>::max(), std::numeric_limits<double>::min(),
                         std::numeric_limits<double>::denorm_min(), 7e-310})
    EXPECT_EQ(sum_of({x}), x);
}

TEST(ExactSum, DoesNotDependOnOrderOrOnWhoAdds) {
  auto numbers = spread(3000);
  const double reference = sum_of(numbers);
  std::mt19937 random(5);
  for (int round = 0; round < 5; ++round) {
    std::shuffle(numbers.begin(), numbers.end(), random);
    EXPECT_EQ(sum_of(numbers), reference);
    ExactSum parts[3], joined;
    std::vector<double> words(ExactSum::kWords, 0), all(ExactSum::kWords, 0);
    for (std::size_t i = 0; i < numbers.size(); ++i) parts[i % 7 % 3].add(numbers[i]);
    for (const ExactSum& part : parts) {
      joined.add(part);
      part.write(words);
      for (std::size_t k = 0; k < words.size(); ++k) all[k] += words[k];
    }
    EXPECT_EQ(joined.value(), reference);
    EXPECT_EQ(ExactSum::read(all).value(), reference);
  }
}

TEST(ExactSum, IsInfiniteWhenANumberIsOrTheSumIsTooLarge) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_TRUE(std::isinf(sum_of({1, bad, 1})));
    ExactSum one;
    one.add(bad);
    std::vector<double> words(ExactSum::kWords);
    one.write(words);
    EXPECT_TRUE(std::isinf(ExactSum::read(words).value()));
  }
  EXPECT_TRUE(std::isinf(sum_of({1.5e308, 1.5e308})));
}

TEST(ExactSum, TakesLimbsThatWereAddedUpElsewhere) {
  ExactSum here, whole;
  std::array<std::uint64_t, ExactSum::kLimbs> limbs{};
  limbs[33] = 5ULL << 32U;  // carried on: 2^-1074 (5 2^32) 2^(32 33) is 5 2^14
  here.add(3);
  whole.add(3);
  whole.add(5 * 0x1p14);
  here.add_limbs(limbs, false);
  EXPECT_EQ(here.value(), whole.value());
  here.add_limbs(limbs, true);
  EXPECT_EQ(here.value(), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace cohort::optim
