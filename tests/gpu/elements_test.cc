// Passes over elements on a GPU beside those of the processor.
#include "cohort/sync/elements.h"

#include <functional>
#include <limits>

#include "cohort/base/error.h"
#include "cohort/base/half.h"
#include "cohort/cuda/elements.h"
#include "tests/gpu/testing.h"

namespace cohort::sync {
namespace {

using Pass = std::function<void(const Piece& a, const Piece& b, const Piece& c)>;

const std::vector<std::pair<const char*, Pass>>& passes() {
  static const std::vector<std::pair<const char*, Pass>> all{
      {"fill", [](const Piece& a, const Piece&, const Piece&) { fill(a, 0.3); }},
      {"zero", [](const Piece& a, const Piece&, const Piece&) { zero(a); }},
      {"copy", [](const Piece& a, const Piece& b, const Piece&) { copy(a, b); }},
      {"swap", [](const Piece& a, const Piece& b, const Piece&) { swap(a, b); }},
      {"add", [](const Piece& a, const Piece& b, const Piece&) { add(a, b); }},
      {"subtract", [](const Piece& a, const Piece& b, const Piece& c) { subtract(a, b, c); }},
      {"add_scaled", [](const Piece& a, const Piece& b, const Piece&) { add_scaled(a, 0.1, b); }},
      {"lerp", [](const Piece& a, const Piece& b, const Piece&) { lerp(a, 0.7, b); }},
      {"scale", [](const Piece& a, const Piece&, const Piece&) { scale(a, 1.0 / 3); }},
      {"divide", [](const Piece& a, const Piece& b, const Piece&) { divide(a, b, 3); }}};
  return all;
}

template <class T>
void expect_the_processors_bits(std::size_t count) {
  for (const auto& [name, pass] : passes()) {
    auto a = noise<T>(count, 1), b = noise<T>(count, 2), c = noise<T>(count, 3);
    const OnGpu<T> x(a, 1), y(b, 3), z(c);
    pass(x.piece(), y.piece(), z.piece());
    pass(piece(std::span(a)), piece(std::span(b)), piece(std::span(c)));
    EXPECT_TRUE(same_bits(x.values(), a)) << name << " of " << count;
    EXPECT_TRUE(same_bits(y.values(), b)) << name << " of " << count;
  }
}

TEST(GpuElements, GiveTheProcessorsBits) {
  for (const std::size_t count : {0, 1, 31, 1000, 100003}) {
    expect_the_processors_bits<float>(count);
    expect_the_processors_bits<double>(count);
  }
}

TEST(GpuElements, FindOneElementThatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    auto values = noise<float>(70001, 4);
    EXPECT_TRUE(all_finite(OnGpu<float>(values).piece()));
    values[69999] = bad;
    EXPECT_FALSE(all_finite(OnGpu<float>(values).piece()));
  }
}

TEST(GpuElements, MeetNoneOfTheProcessor) {
  std::vector<float> here(4);
  const OnGpu<float> there(here);
  EXPECT_THROW(copy(there.piece(), piece(std::span(here))), Failure);
}

TEST(GpuElements, AreCastAsTheProcessorCastsThem) {
  auto values = noise<float>(5000, 5);
  for (const float x : {0.0F, -0.0F, 65504.0F, 65520.0F, 1e-8F, 6e-8F, 3.4e38F, std::numeric_limits<float>::infinity()})
    values.push_back(x);
  const OnGpu<float> from(values);
  for (const Dtype narrow : {Dtype::f16, Dtype::bf16}) {
    const OnGpu<std::int16_t> to(std::vector<std::int16_t>(values.size()));
    const OnGpu<float> back(std::vector<float>(values.size()));
    const Piece there{to.data(), values.size(), narrow, kGpu};
    cuda::cast(there, from.piece());
    cuda::cast(back.piece(), there);
    const auto bits = to.values();
    const auto wide = back.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t expected = narrow == Dtype::f16 ? to_f16(values[i]) : to_bf16(values[i]);
      EXPECT_EQ(static_cast<std::uint16_t>(bits[i]), expected) << values[i];
      EXPECT_EQ(wide[i], narrow == Dtype::f16 ? from_f16(expected) : from_bf16(expected)) << values[i];
    }
  }
}

}  // namespace
}  // namespace cohort::sync
