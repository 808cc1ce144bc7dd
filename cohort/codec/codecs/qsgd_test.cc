#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

TEST(Qsgd, TakesTheBitsThatItsLevelsNeedAndTwoBytesABlock) {
  const Layout layout = layout_of({256, 3});
  EXPECT_EQ(make("qsgd(levels=1)")->bound(layout, layout.all()), 2 + 64 + 2 + 1);
  EXPECT_EQ(make("qsgd(levels=2)")->bound(layout, layout.all()), 2 + 128 + 2 + 2);
  EXPECT_EQ(make("qsgd(levels=7)")->bound(layout, layout.all()), 2 + 128 + 2 + 2);
  EXPECT_EQ(make("qsgd(levels=8)")->bound(layout, layout.all()), 2 + 256 + 2 + 3);
  EXPECT_EQ(failure_of([] { make("qsgd(levels=128)"); }).kind, Kind::usage);
}

TEST(Qsgd, SendsOneOfTheTwoLevelsNextToAnElement) {
  const Layout layout = layout_of({256});
  for (const char* spec : {"qsgd(levels=1)", "qsgd(levels=5)", "qsgd", "qsgd(levels=127)", "qsgd(levels=7, norm=max)"})
    for (std::uint64_t step = 0; step < 20; ++step) {
      const auto codec = make(spec);
      const auto x = noise(layout, static_cast<unsigned>(step));
      const Buffer payload = encoded(*codec, layout, x, layout.all(), Random(1, step));
      std::uint16_t unit_bits = 0;
      std::memcpy(&unit_bits, payload.data(), 2);
      const double unit = static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(unit_bits) << 16));
      const auto c = absorbed(*codec, layout, {payload}, layout.all());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double level = static_cast<double>(c[i]) / unit;
        ASSERT_EQ(level, std::round(level)) << spec;
        ASSERT_LT(std::abs(static_cast<double>(c[i]) - static_cast<double>(x[i])), unit * (1 + 1e-6)) << spec;
      }
    }
}

TEST(Qsgd, HasTheVarianceOfThePaper) {
  const Layout layout = layout_of({256});
  for (const auto& [spec, s] : {std::pair{"qsgd(levels=1)", 1.0}, {"qsgd", 7.0}, {"qsgd(levels=16)", 16.0}, {"qsgd(levels=127)", 127.0}}) {
    const auto codec = make(spec);
    const auto x = noise(layout, 3);
    double squares = 0, lost = 0;
    constexpr int kDraws = 200;
    for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
    for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
      const auto c = sent(*codec, layout, x, Random(2, draw));
      for (std::size_t i = 0; i < x.size(); ++i) lost += std::pow(static_cast<double>(c[i]) - static_cast<double>(x[i]), 2) / kDraws;
    }
    EXPECT_LE(lost, std::min(256 / (s * s), 16 / s) * squares * 1.02) << spec;  // the norm is rounded up by a 128th at most
    EXPECT_GT(lost, 0) << spec;
  }
}

TEST(Qsgd, KeepsWholeLevelsAsTheyAre) {
  const Layout layout = layout_of({15});
  std::vector<float> values(layout.count);
  for (int i = 0; i < 15; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i - 7) / 4;
  EXPECT_EQ(sent(*make("qsgd(levels=7, norm=max)"), layout, values), values);
}

TEST(Qsgd, OfNumbersWhoseNormNoScaleHoldsIsNotFinite) {
  const Layout layout = layout_of({256});
  const std::vector<float> values(layout.count, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isnan(sent(*make("qsgd(levels=1)"), layout, values)[0]));
}

}  // namespace
}  // namespace cohort::codec
