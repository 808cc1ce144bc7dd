#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/codec/codecs/elias.h"
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

TEST(Qsgd, InEliasCodeIsTheSameInFewerBytes) {
  const Layout layout = layout_of({4096, 100});
  const auto x = noise(layout, 7);
  for (const int levels : {1, 3, 7, 16, 127}) {
    const auto plain = make("qsgd(levels=" + std::to_string(levels) + ")");
    const auto elias = make("qsgd(elias=true, levels=" + std::to_string(levels) + ")");
    EXPECT_TRUE(elias->variable());
    EXPECT_EQ(elias->bound(layout, layout.all()), plain->bound(layout, layout.all()));
    const Buffer longer = encoded(*plain, layout, x, layout.all(), Random(1, 2));
    const Buffer shorter = encoded(*elias, layout, x, layout.all(), Random(1, 2));
    EXPECT_LT(shorter.size(), longer.size()) << levels;
    EXPECT_TRUE(same_bits(absorbed(*plain, layout, {longer}, layout.all()), absorbed(*elias, layout, {shorter}, layout.all()))) << levels;
  }
}

// n = 256, s = sqrt(n): 2.8 n + 32 bits in the paper, of which the norm takes 32, and 16 here.
TEST(Qsgd, InEliasCodeTakesNoMoreBitsThanThePaperSays) {
  const Layout layout = layout_of({256});
  const auto elias = make("qsgd(levels=16, elias=true)");
  double bits = 0;
  constexpr int kDraws = 200;
  for (unsigned seed = 0; seed < kDraws; ++seed)
    bits += 8 * static_cast<double>(encoded(*elias, layout, noise(layout, seed), layout.all(), Random(3, seed)).size()) / kDraws;
  EXPECT_LE(bits, 2.8 * 256 + 32);
}

TEST(Qsgd, InEliasCodeReadsEveryBlockThatItWrites) {
  std::mt19937 random(11);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t count = 1 + random() % kBlock;
    const int levels = 1 + static_cast<int>(random() % 127), zeros = static_cast<int>(random() % 10);
    Codes codes{}, back;
    for (std::size_t k = 0; k < count; ++k)
      if (static_cast<int>(random() % 10) >= zeros)
        codes[k] = static_cast<std::int8_t>(static_cast<int>(random() % static_cast<unsigned>(2 * levels + 1)) - levels);
    std::array<std::byte, 1000> memory;  // NOLINT: written before it is read
    memory.fill(std::byte{0xff});
    const std::size_t size = elias_encode(codes, count, memory.data(), 600);
    ASSERT_GT(size, 0u);
    ASSERT_EQ(memory[size], std::byte{0xff});
    back.fill(99);
    ASSERT_EQ(elias_decode(memory, count, levels, back.data()), size);
    ASSERT_TRUE(std::equal(codes.begin(), codes.begin() + static_cast<std::ptrdiff_t>(count), back.begin()));
    if (count < kBlock) {
      ASSERT_EQ(back[count], 99);
    }
    for (std::size_t shorter = 0; shorter < size; ++shorter)
      ASSERT_EQ(elias_decode(ConstBytes(memory).first(shorter), count, levels, nullptr), 0u);
    ASSERT_EQ(elias_encode(codes, count, memory.data(), size - 1), 0u);
  }
}

TEST(Qsgd, InEliasCodeRefusesWhatNoBlockHas) {
  const Layout layout = layout_of({8});
  const auto elias = make("qsgd(elias=true)");
  const auto refused = [&](std::initializer_list<unsigned> bytes) {
    Buffer payload;
    for (const unsigned byte : bytes) payload.push_back(static_cast<std::byte>(byte));
    return failure_of([&] { absorbed(*elias, layout, {payload}, layout.all()); }).kind == Kind::corrupt;
  };
  EXPECT_FALSE(refused({0x80, 0xbf, 0x18}));        // gamma(9): eight zeros
  EXPECT_FALSE(refused({0x80, 0xbf, 0x18, 0, 0}));  // zeros behind
  EXPECT_TRUE(refused({0x80, 0xbf, 0x18, 1}));
  EXPECT_TRUE(refused({0x80, 0xbf, 0x28}));  // gamma(10): beyond the end
  EXPECT_TRUE(refused({0x80, 0xbf, 0x98}));  // a bit behind
  EXPECT_TRUE(refused({0x80, 0xff, 0x18}));  // no unit
  EXPECT_TRUE(refused({0x80, 0xbf, 0}));     // endless zeros
  EXPECT_TRUE(refused({0x80, 0xbf, 0x00, 0x00}));
  EXPECT_TRUE(refused({0x80}));
}

TEST(Qsgd, OfNumbersWhoseNormNoScaleHoldsIsNotFinite) {
  const Layout layout = layout_of({256});
  const std::vector<float> values(layout.count, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isnan(sent(*make("qsgd(levels=1)"), layout, values)[0]));
}

}  // namespace
}  // namespace cohort::codec
