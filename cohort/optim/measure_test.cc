#include "cohort/optim/measure.h"

#include <gmock/gmock.h>

#include <limits>

#include "cohort/base/failure_of.h"
#include "cohort/base/isa.h"
#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

template <class T>
std::vector<T> noise(std::size_t count) {
  std::vector<T> values(count);
  std::mt19937 random(2);
  fill_normal(values, random);
  return values;
}
template <class T>
Measure of(const std::vector<T>& values, std::size_t from, std::size_t to, Measure before = {}) {
  measure(values.data() + from, to - from, kReal<T>, before);
  return before;
}

// The order as measure.h has it, one addition at a time.
template <class T>
double by_formula(const std::vector<T>& values) {
  ExactSum total;
  for (std::size_t at = 0; at < values.size(); at += 256) {
    double lanes[16] = {};
    for (std::size_t i = at; i < std::min(at + 256, values.size()); ++i)
      lanes[(i - at) % 16] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    for (int half : {8, 4, 2, 1})
      for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    total.add(lanes[0]);
  }
  return total.value();
}

TEST(Measure, FollowsItsBracketBitForBitOnEveryInstructionSet) {
  for (const Isa isa : runnable_isas()) {
    use_isa(isa);
    for (const std::size_t count : {0, 1, 5, 15, 16, 17, 31, 32, 33, 255, 256, 257, 12345}) {
      const auto f32 = noise<float>(count);
      const auto f64 = noise<double>(count);
      EXPECT_EQ(squared_norm(f32.data(), count, Dtype::f32), by_formula(f32)) << name_of(isa) << " " << count;
      EXPECT_EQ(squared_norm(f64.data(), count, Dtype::f64), by_formula(f64)) << name_of(isa) << " " << count;
    }
  }
}

TEST(Measure, IsTheSquaredNorm) {
  const auto values = noise<float>(100000);
  long double sum = 0;
  for (const float x : values) sum += static_cast<long double>(x) * x;
  EXPECT_NEAR(squared_norm(values.data(), values.size(), Dtype::f32) / static_cast<double>(sum), 1, 1e-14);
}

TEST(Measure, DoesNotDependOnAlignment) {
  const auto values = noise<float>(9000);
  std::vector<float> moved(9001);
  std::copy(values.begin(), values.end(), moved.begin() + 1);
  EXPECT_EQ(of(values, 0, 9000).squared.value(), of(moved, 1, 9001).squared.value());
}

TEST(Measure, CutsAtBlocksGiveTheBitsOfTheWholeInAnyOrder) {
  const auto values = noise<double>(5 * kMeasureBlock + 17);
  const std::size_t size = values.size();
  Measure sum = of(values, 4 * kMeasureBlock, size);
  sum = of(values, 0, kMeasureBlock, sum);
  EXPECT_EQ(of(values, kMeasureBlock, 4 * kMeasureBlock, sum).squared.value(), of(values, 0, size).squared.value());
}

TEST(Measure, FindsEachValueThatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")})
    for (const std::size_t at : {0, 1, 33, 4095, 4096, 8000}) {
      auto f32 = noise<float>(8001);
      auto f64 = noise<double>(8001);
      EXPECT_TRUE(all_finite(f32.data(), f32.size(), Dtype::f32) && all_finite(f64.data(), f64.size(), Dtype::f64));
      f32[at] = bad;
      f64[at] = bad;
      EXPECT_FALSE(all_finite(f32.data(), f32.size(), Dtype::f32)) << bad << " at " << at;
      EXPECT_FALSE(all_finite(f64.data(), f64.size(), Dtype::f64)) << bad << " at " << at;
      EXPECT_FALSE(of(noise<float>(10), 0, 10, of(f32, 0, 8001)).finite) << "what was found before is not forgotten";
    }
}

TEST(Measure, LargeValuesAreFinite) {
  const std::vector<float> f32(5000, std::numeric_limits<float>::max());
  const std::vector<double> f64(5000, 1e200);
  EXPECT_EQ(of(f32, 0, 5000).finite, true);
  EXPECT_TRUE(std::isfinite(of(f32, 0, 5000).squared.value()));
  EXPECT_EQ(of(f64, 0, 5000).finite, true);  // though their squares are not
  EXPECT_FALSE(std::isfinite(of(f64, 0, 5000).squared.value()));
}

TEST(Clip, BringsANormDownToItsLimitAndLeavesSmallOnesAlone) {
  EXPECT_EQ(clip_coefficient(0, 1), 1);
  EXPECT_EQ(clip_coefficient(0.25, 1), 1);
  EXPECT_NEAR(clip_coefficient(100, 1) * 10, 1, 1e-6);
  EXPECT_EQ(clip_coefficient(100, 1), 1 / (10 + 1e-6));  // torch::nn::utils::clip_grad_norm_
  EXPECT_EQ(failure_of([] { clip_coefficient(1, 0); }).kind, Kind::usage);
  EXPECT_THAT(failure_of([] { clip_coefficient(INFINITY, 1); }).what, testing::HasSubstr("drop this step"));
}

}  // namespace
}  // namespace cohort::optim
