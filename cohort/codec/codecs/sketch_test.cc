#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

using testing::HasSubstr;
using Values = std::vector<float>;

const Layout kLayout = layout_of({2000});
const Random kRandom(4, 9);

Values whole_numbers(unsigned seed) {  // sums are exact
  Values x(kLayout.count);
  std::mt19937 random(seed);
  for (std::size_t i = 0; i < 2000; ++i) x[i] = static_cast<float>(static_cast<int>(random() % 201) - 100);
  return x;
}

Values sketch_of(const Codec& codec, const Values& x) {
  Values out(codec.round_bytes(0, kLayout, kLayout.all()) / 4);
  codec.encode({.layout = kLayout, .range = kLayout.all(), .values = whole(x), .random = kRandom, .round = 0},
               std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(Sketch, IsLinear) {
  const auto codec = make("sketch(ratio=0.01, width=3)");
  const Values a = whole_numbers(1), b = whole_numbers(2);
  Values sum(a.size()), of_sum = sketch_of(*codec, a);
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  const Values of_b = sketch_of(*codec, b);
  for (std::size_t i = 0; i < of_b.size(); ++i) of_sum[i] += of_b[i];
  EXPECT_EQ(sketch_of(*codec, sum), of_sum);
}

TEST(Sketch, TakesItsRowsAndTheValuesAndNoPlaces) {
  const auto codec = make("sketch(ratio=0.01, width=3)");
  EXPECT_EQ(codec->round_bytes(0, kLayout, kLayout.all()), 4 * 3 * 60u);
  EXPECT_EQ(codec->bound(kLayout, kLayout.all()), 4 * (3 * 60u + 1 + 20));
  EXPECT_EQ(make("sketch(ratio=0.01, width=2.5, rows=1)")->bound(kLayout, kLayout.all()), 4 * (50u + 1 + 20));
  EXPECT_EQ(codec->mix(), Mix::add);
  const Layout small = layout_of({5, 1});  // no less than as they are
  EXPECT_EQ(codec->bound(small, small.all()), 4 * 6u);
  const Values x = noise(small, 1);
  EXPECT_TRUE(same_bits(sent(*codec, small, x), x));
}

TEST(Sketch, FindsElementsThatStandOutAndSendsThemExactly) {
  const Layout layout = layout_of({20000});
  for (std::uint64_t step = 0; step < 20; ++step) {
    Values x = noise(layout, static_cast<unsigned>(step)), wanted(layout.count);
    for (std::size_t i = 0; i < 20; ++i)
      wanted[997 * i + 5] = x[997 * i + 5] = static_cast<float>(i % 2 == 0 ? 100 : -90) + static_cast<float>(i);
    const auto c = sent(*make("sketch(ratio=0.001, width=300)"), layout, x, Random(1, step));
    std::size_t found = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_TRUE(c[i] == 0 || c[i] == x[i]) << i;
      found += c[i] != 0 && c[i] == wanted[i] ? 1 : 0;
    }
    EXPECT_GE(found, 18u) << step;  // of 20, of which a few lose to elements that meet two of them
  }
}

// Small on each rank, large together: topk of neither would send it.
TEST(Sketch, FindsWhatIsLargeInTheSum) {
  const auto codec = make("sketch(ratio=0.001, width=100)");
  std::vector<Values> ranks{Values(kLayout.count), Values(kLayout.count)};
  for (std::size_t i = 0; i < 50; ++i) {
    ranks[0][40 * i] = 10;
    ranks[1][40 * i] = -10;
  }
  ranks[0][777] = ranks[1][777] = 6;
  ranks[0][1234] = ranks[1][1234] = -5;
  Values sums = sketch_of(*codec, ranks[0]);
  const Values other = sketch_of(*codec, ranks[1]);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += other[i];
  Values payload = sums;
  payload.resize(codec->bound(kLayout, kLayout.all()) / 4);
  Values added(payload.size() - sums.size());
  for (const Values& x : ranks) {
    Values one(added.size());
    codec->encode({.layout = kLayout,
                   .range = kLayout.all(),
                   .values = whole(x),
                   .random = kRandom,
                   .round = 1,
                   .before = std::as_bytes(std::span(sums))},
                  std::as_writable_bytes(std::span(one)));
    for (std::size_t i = 0; i < one.size(); ++i) added[i] += one[i];
  }
  std::copy(added.begin(), added.end(), payload.begin() + static_cast<std::ptrdiff_t>(sums.size()));
  const auto bytes = std::as_bytes(std::span(payload));
  const Values c = absorbed(*codec, kLayout, {Buffer(bytes.begin(), bytes.end())}, kLayout.all(), 1, 0, kRandom);
  Values wanted(kLayout.count);
  wanted[777] = 12;
  wanted[1234] = -10;
  EXPECT_EQ(c, wanted);
}

TEST(Sketch, OfWhatIsNotFiniteIsNotFinite) {
  Values x = noise(kLayout, 3);
  x[1999] = INFINITY;
  EXPECT_TRUE(std::isnan(sent(*make("sketch"), kLayout, x, kRandom)[0]));
}

TEST(Sketch, RefusesAPayloadOfAnotherLength) {
  EXPECT_THAT(failure_of([] { absorbed(*make("sketch"), kLayout, {Buffer(100)}, kLayout.all()); }).what, HasSubstr("100 bytes, not"));
  EXPECT_EQ(failure_of([] { make("sketch(rows=2)"); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::codec
