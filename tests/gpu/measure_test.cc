// Squared norm and finiteness on a GPU beside those of the processor.
#include "cohort/optim/measure.h"

#include <limits>

#include "cohort/optim/gpu_measure.h"
#include "tests/gpu/testing.h"

namespace cohort::optim {
namespace {

template <class T>
Measure on_gpu(const std::vector<T>& values, const std::vector<std::size_t>& cuts = {}) {
  const OnGpu<T> there(values);
  GpuMeasure measure(kGpu);
  measure.begin();
  std::size_t from = 0;
  for (const std::size_t cut : cuts) {
    measure.add(there.data() + from, cut - from, kDtypeOf<T>);
    from = cut;
  }
  measure.add(there.data() + from, values.size() - from, kDtypeOf<T>);
  measure.end();
  Measure found;
  measure.await(found);
  return found;
}

template <class T>
Measure here(const std::vector<T>& values) {
  Measure found;
  measure(values.data(), values.size(), kDtypeOf<T>, found);
  return found;
}

template <class T>
void expect_the_processors(const std::vector<T>& values) {
  const Measure there = on_gpu(values), mine = here(values);
  EXPECT_EQ(there.finite, mine.finite) << values.size();
  EXPECT_EQ(there.squared.value(), mine.squared.value()) << values.size();
  std::vector<double> a(ExactSum::kWords), b(ExactSum::kWords);
  there.squared.write(a);
  mine.squared.write(b);
  EXPECT_EQ(a, b) << "every limb, " << values.size();
}

TEST(GpuMeasure, FindsTheProcessorsLimbsForAnySize) {
  for (const std::size_t count : {0, 1, 15, 16, 17, 255, 256, 257, 4096, 4097, 1000003}) {
    expect_the_processors(noise<float>(count, 6));
    expect_the_processors(noise<double>(count, 7));
  }
}

TEST(GpuMeasure, FindsThemForTheSmallestAndTheLargestNumbers) {
  const std::vector<double> doubles{5e-324, 1e-160, 1e-170, 1e150, 0, -0.0, 3e-310, 1};
  const std::vector<float> floats{1e-45F, 3.4e38F, -1e-38F, 0, -0.0F, 1};
  expect_the_processors(doubles);
  expect_the_processors(floats);
  expect_the_processors(std::vector<double>(300, 1e200));  // squares overflow, the elements do not
}

TEST(GpuMeasure, SaysWhereANumberIsNotFinite) {
  auto values = noise<float>(100000, 8);
  values[54321] = std::numeric_limits<float>::quiet_NaN();
  expect_the_processors(values);
  auto wide = noise<double>(100000, 9);
  wide[99999] = -std::numeric_limits<double>::infinity();
  expect_the_processors(wide);
  EXPECT_FALSE(on_gpu(wide).finite);
}

TEST(GpuMeasure, HasTheSameBitsHoweverARunIsCutAtBlocks) {
  const auto values = noise<float>(50000, 10);
  const double whole = on_gpu(values).squared.value();
  EXPECT_EQ(on_gpu(values, {256}).squared.value(), whole);
  EXPECT_EQ(on_gpu(values, {512, 512, 4096, 49920}).squared.value(), whole);
}

}  // namespace
}  // namespace cohort::optim
