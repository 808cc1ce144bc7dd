#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "cohort/base/failure_of.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

using testing::HasSubstr;

TEST(Topk, SendsTheLargestOfEveryTensorAsAFullSortDoes) {
  std::mt19937 random(3);
  for (const double ratio : {0.001, 0.01, 0.3, 0.999, 1.0}) {
    const auto codec = make("topk(ratio=" + std::to_string(ratio) + ")");
    const Layout layout = layout_of({1, 2, 1000, 5000});
    auto values = noise(layout, random());
    for (float& v : values) v = std::round(v * 8) / 8;  // many are equal
    std::vector<float> wanted(layout.count);
    for (const TensorPlace& t : layout.tensors) {
      std::vector<std::size_t> order(t.count);
      std::iota(order.begin(), order.end(), t.first);
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return std::abs(values[a]) > std::abs(values[b]); });
      const auto k = std::max<std::size_t>(1, static_cast<std::size_t>(ratio * static_cast<double>(t.count)));
      for (std::size_t i = 0; i < k; ++i) wanted[order[i]] = values[order[i]];
    }
    EXPECT_EQ(sent(*codec, layout, values), wanted) << ratio;
  }
}

TEST(Topk, TakesEightBytesAnEntryAndFourATensor) {
  const Layout layout = layout_of({1, 50, 1000});
  EXPECT_EQ(make("topk(ratio=0.01)")->bound(layout, layout.all()), 3 * 4 + 8 * (1 + 1 + 10));
  EXPECT_EQ(encoded(*make("topk"), layout, noise(layout, 1)).size(), 3 * 4 + 8 * (1 + 1 + 10));
}

TEST(Topk, WithRatioOneChangesNoBit) {
  const Layout layout = layout_of({3, 600});
  auto values = noise(layout, 4);
  values[1] = -0.0F;
  EXPECT_TRUE(same_bits(sent(*make("topk(ratio=1)"), layout, values), values));
}

TEST(Topk, DeclaresTheShareThatItsWorstTensorKeeps) {
  EXPECT_EQ(make("topk(ratio=0.1)")->contraction(layout_of({100})), 0.1);
  EXPECT_EQ(make("topk(ratio=0.1)")->contraction(layout_of({100, 39})), 3.0 / 39);
  EXPECT_EQ(make("topk(ratio=0.1)")->contraction(layout_of({4})), 0.25);  // one at least
}

TEST(Topk, RefusesEntriesThatNoTensorHas) {
  const auto codec = make("topk(ratio=0.5)");
  const Layout layout = layout_of({4});
  const auto refusal = [&](std::vector<std::uint32_t> words) {
    Buffer payload(words.size() * 4);
    std::memcpy(payload.data(), words.data(), payload.size());
    return failure_of([&] { absorbed(*codec, layout, {payload}, layout.all()); });
  };
  EXPECT_EQ(refusal({2, 0, 3, 0x3f800000, 0x3f800000}).what, "(it did not fail)");
  EXPECT_EQ(refusal({1, 3, 0x3f800000, 0, 0}).what, "(it did not fail)");  // zeros behind
  EXPECT_THAT(refusal({2, 0, 4, 1, 1}).what, HasSubstr("t0 has entries outside"));
  EXPECT_THAT(refusal({2, 1, 1, 1, 1}).what, HasSubstr("twice or out of order"));
  EXPECT_THAT(refusal({2, 3, 1, 1, 1}).what, HasSubstr("twice or out of order"));
  EXPECT_THAT(refusal({3, 0, 1, 2, 1}).what, HasSubstr("too many entries"));
  EXPECT_THAT(refusal({0xffffffff, 0, 1, 2, 1}).what, HasSubstr("too many entries"));
  EXPECT_THAT(refusal({2, 0, 1, 1}).what, HasSubstr("ends too early"));
  EXPECT_THAT(refusal({1, 3, 0x3f800000, 0, 7}).what, HasSubstr("behind its end"));
}

}  // namespace
}  // namespace cohort::codec
