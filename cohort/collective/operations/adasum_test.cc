#include "cohort/collective/operations/adasum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cohort/base/half.h"
#include "cohort/collective/ranks.h"

namespace cohort::collective {
namespace {

using ::testing::HasSubstr;
using Vector = std::vector<double>;

// The definition, by one thread: neighbours in pairs, round by round.
Vector pair(const Vector& a, const Vector& b) {
  double dot = 0, left = 0, right = 0;
  for (std::size_t i = 0; i < a.size(); ++i) dot += a[i] * b[i], left += a[i] * a[i], right += b[i] * b[i];
  const double of_a = left < 1.5e-154 ? 1 : 1 - dot / (2 * left), of_b = right < 1.5e-154 ? 1 : 1 - dot / (2 * right);
  Vector result(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) result[i] = of_a * a[i] + of_b * b[i];
  return result;
}

Vector reference(std::vector<Vector> all) {
  while (all.size() > 1) {
    std::vector<Vector> next;
    for (std::size_t i = 0; i + 1 < all.size(); i += 2) next.push_back(pair(all[i], all[i + 1]));
    if (all.size() % 2 == 1) next.push_back(all.back());
    all = std::move(next);
  }
  return all.front();
}

std::vector<Vector> gradients(int ranks, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0.5, 1.0);
  std::vector<Vector> all(static_cast<std::size_t>(ranks), Vector(count));
  for (auto& each : all)
    for (auto& x : each) x = noise(random);
  return all;
}

TEST(Adasum, EqualsTheDefinitionForAnyRanksAndSizes) {
  for (int ranks = 1; ranks <= 7; ++ranks)
    for (const std::size_t count : {0, 1, 2, 5, 1000}) {
      const auto inputs = gradients(ranks, count, static_cast<unsigned>(ranks) * 31);
      const Vector expected = reference(inputs);
      run_ranks(ranks, [&](Communicator& comm) {
        Vector wide = inputs[static_cast<std::size_t>(comm.rank().value)];
        std::vector<float> narrow(wide.begin(), wide.end());
        adasum(comm, piece(std::span(wide)), {.name = "wide"});
        adasum(comm, piece(std::span(narrow)), {.name = "narrow"});
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_NEAR(wide[i], expected[i], 1e-12 * (1 + std::fabs(expected[i]))) << ranks << " ranks, element " << i;
          ASSERT_NEAR(narrow[i], expected[i], 1e-5 * (1 + std::fabs(expected[i]))) << ranks << " ranks, element " << i;
        }
      });
    }
}

TEST(Adasum, AddsOrthogonalAndAveragesParallelGradients) {
  run_ranks(8, [](Communicator& comm) {
    Vector own(8, 0.0), along(3, 1.0 + comm.rank().value), against{comm.rank().value % 2 == 0 ? 2.0 : -2.0};
    own[static_cast<std::size_t>(comm.rank().value)] = 3.0;
    adasum(comm, piece(std::span(own)));
    adasum(comm, piece(std::span(along)));
    adasum(comm, piece(std::span(against)));
    for (const double x : own) EXPECT_DOUBLE_EQ(x, 3.0);
    for (const double x : along) EXPECT_NEAR(x, 4.5, 1e-12);
    EXPECT_EQ(against[0], 0.0);
  });
}

TEST(Adasum, SixteenBitTypesAreCombinedInThirtyTwo) {
  const auto inputs = gradients(3, 257, 7);
  run_ranks(3, [&](Communicator& comm) {
    const Vector& mine = inputs[static_cast<std::size_t>(comm.rank().value)];
    std::vector<std::uint16_t> half, brain;
    for (const double x : mine) half.push_back(to_f16(static_cast<float>(x))), brain.push_back(to_bf16(static_cast<float>(x)));
    adasum(comm, {half.data(), half.size(), Dtype::f16});
    adasum(comm, {brain.data(), brain.size(), Dtype::bf16});
    const Vector expected = reference(inputs);
    for (std::size_t i = 0; i < half.size(); ++i) {
      ASSERT_NEAR(from_f16(half[i]), expected[i], 1e-2);
      ASSERT_NEAR(from_bf16(brain[i]), expected[i], 1e-1);
    }
  });
}

TEST(Adasum, TinyAndZeroGradientsAreAdded) {
  run_ranks(2, [](Communicator& comm) {
    Vector zero(2, 0.0), tiny(2, 1e-100);
    adasum(comm, piece(std::span(zero)));
    adasum(comm, piece(std::span(tiny)));
    EXPECT_EQ(zero[0], 0.0);
    EXPECT_DOUBLE_EQ(tiny[0], 2e-100);
  });
}

TEST(Adasum, ScalesBeforeAndAfter) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> x(2, 0.0F);
    x[static_cast<std::size_t>(comm.rank().value)] = 1.0F;
    adasum(comm, piece(std::span(x)), {.prescale = 3.0, .postscale = 0.5});
    EXPECT_FLOAT_EQ(x[0], 1.5F);
    EXPECT_FLOAT_EQ(x[1], 1.5F);
  });
}

TEST(Adasum, RefusesIntegers) {
  run_ranks(1, [](Communicator& comm) {
    std::vector<std::int32_t> whole(4);
    try {
      adasum(comm, piece(std::span(whole)), {.name = "steps"});
      FAIL();
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.kind(), Kind::usage);
      EXPECT_THAT(failure.what(), HasSubstr("'steps' combines real numbers, not i32"));
    }
  });
}

}  // namespace
}  // namespace cohort::collective
