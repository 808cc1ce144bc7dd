// The rules of kernels.h by hand-written example, where kernels_test.cc compares with a reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"
#include "cohort/collective/kernels/kernels.h"

namespace cohort::collective {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::vector<T> reduced(const Kernels& set, Reduction how, std::vector<std::vector<T>> sources) {
  std::vector<T> result(sources[0].size());
  std::vector<const void*> from;
  for (auto& each : sources) from.push_back(each.data());
  const std::array<void*, 1> to = {result.data()};
  set.reduce(how, from, to, result.size());
  return result;
}

float number(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(KernelRules, SumsOfIntegersWrapAround) {
  for (const Kernels& set : runnable_kernels()) {
    constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
    EXPECT_THAT(reduced<std::int64_t>(set, {Dtype::i64, Op::sum}, {{kMost, 1}, {1, 2}}),
                ElementsAre(std::numeric_limits<std::int64_t>::min(), 3));
    EXPECT_THAT(reduced<std::int8_t>(set, {Dtype::i8, Op::product}, {{100, -128}, {3, -1}}), ElementsAre(44, -128));
    EXPECT_THAT(reduced<std::uint8_t>(set, {Dtype::u8, Op::sum}, {{200, 255}, {100, 1}}), ElementsAre(44, 0));
  }
}

TEST(KernelRules, ScaledIntegersTruncateAndSaturateAndNaNIsZero) {
  for (const Kernels& set : runnable_kernels()) {
    std::int8_t small[] = {127, -128, 5, -5};
    set.scale(Dtype::i8, small, 4, 1.5);
    EXPECT_THAT(small, ElementsAre(127, -128, 7, -7));
    std::uint8_t bytes[] = {255, 3, 0};
    set.scale(Dtype::u8, bytes, 3, -1.0);
    EXPECT_THAT(bytes, ElementsAre(0, 0, 0));
    std::int64_t large[] = {std::numeric_limits<std::int64_t>::max(), -7};
    set.scale(Dtype::i64, large, 2, 1.0);  // a factor of one does not pass through double
    EXPECT_THAT(large, ElementsAre(std::numeric_limits<std::int64_t>::max(), -7));
    set.scale(Dtype::i64, large, 2, 2.0);
    EXPECT_THAT(large, ElementsAre(std::numeric_limits<std::int64_t>::max(), -14));
    set.scale(Dtype::i64, large, 2, std::nan(""));
    EXPECT_THAT(large, ElementsAre(0, 0));
  }
}

TEST(KernelRules, TheLeftNaNWinsAndComesOutQuiet) {
  const float left = number(0x7f800123), right = number(0xffc00456);  // the left one is signalling
  for (const Kernels& set : runnable_kernels())
    for (const Op op : {Op::sum, Op::product, Op::min, Op::max}) {
      const auto got = reduced<float>(set, {Dtype::f32, op}, {{left, left, 1.0f, right}, {right, 1.0f, left, left}});
      EXPECT_EQ(bits(got[0]), 0x7fc00123u) << set.name << " " << name_of(op);
      EXPECT_EQ(bits(got[1]), 0x7fc00123u) << set.name << " " << name_of(op);
      EXPECT_EQ(bits(got[2]), 0x7fc00123u) << set.name << " " << name_of(op);
      EXPECT_EQ(bits(got[3]), 0xffc00456u) << set.name << " " << name_of(op);
    }
}

TEST(KernelRules, EqualZerosKeepTheLeftOnesSign) {
  for (const Kernels& set : runnable_kernels())
    for (const Op op : {Op::min, Op::max}) {
      const auto got = reduced<float>(set, {Dtype::f32, op}, {{0.0f, -0.0f}, {-0.0f, 0.0f}});
      EXPECT_EQ(bits(got[0]), 0u) << set.name << " " << name_of(op);
      EXPECT_EQ(bits(got[1]), 0x80000000u) << set.name << " " << name_of(op);
    }
}

TEST(KernelRules, SixteenBitSumsAreRoundedAtEachAddition) {
  // 2048 + 1 is a tie in f16 and goes to 2048, twice; rounded once it would have been 2050.
  for (const Kernels& set : runnable_kernels())
    EXPECT_THAT(reduced<std::uint16_t>(set, {Dtype::f16, Op::sum}, {{0x6800}, {0x3c00}, {0x3c00}}), ElementsAre(0x6800)) << set.name;
}

TEST(KernelRules, ASubnormalSurvives) {
  for (const Kernels& set : runnable_kernels()) {
    EXPECT_THAT(reduced<std::uint16_t>(set, {Dtype::f16, Op::sum}, {{1}, {1}}), ElementsAre(2)) << set.name;
    EXPECT_THAT(reduced<std::uint16_t>(set, {Dtype::bf16, Op::sum}, {{1}, {1}}), ElementsAre(2)) << set.name;
  }
}

TEST(KernelRules, AnAverageOfF32IsTheDoubleProductRoundedOnce) {
  for (const Kernels& set : runnable_kernels()) {
    const auto got = reduced<float>(set, {Dtype::f32, Op::sum, 1.0, 1.0 / 3}, {{5.0f}, {8.0f}, {10.0f}});
    EXPECT_EQ(got[0], static_cast<float>(23.0 * (1.0 / 3))) << set.name;
  }
}

TEST(KernelRules, TruthIsAnyNonZeroByteAndResultsAreZeroOrOne) {
  for (const Kernels& set : runnable_kernels()) {
    EXPECT_THAT(reduced<std::uint8_t>(set, {Dtype::boolean, Op::sum}, {{0, 2, 0, 255}, {0, 0, 128, 1}}), ElementsAre(0, 1, 1, 1));
    EXPECT_THAT(reduced<std::uint8_t>(set, {Dtype::boolean, Op::product}, {{0, 2, 0, 255}, {0, 0, 128, 1}}), ElementsAre(0, 0, 0, 1));
    EXPECT_THAT(reduced<std::uint8_t>(set, {Dtype::boolean, Op::max}, {{0, 2, 200}}), ElementsAre(0, 1, 1));
  }
}

TEST(KernelRules, ALoneSourcePassesThroughUnchanged) {
  for (const Kernels& set : runnable_kernels())
    EXPECT_THAT(reduced<std::uint16_t>(set, {Dtype::f16, Op::sum}, {{0x7c01, 0x0001, 0x8000}}), ElementsAre(0x7c01, 0x0001, 0x8000));
}

#if !defined(__SANITIZE_THREAD__)  // it has one thread only, and the shadow of so many addresses would be 32 GiB
// 4 GiB and a little of addresses over 8 MiB of memory: the same stretch again and again, the last stretch on memory of its own.
TEST(KernelRules, IndicesGoBeyondFourBillion) {
  constexpr std::size_t kStretch = std::size_t{4} << 20, kStretches = 1025, kCount = kStretch * kStretches - 5;
  const auto reserve = [&] {
    const Fd front(memfd_create("front", MFD_CLOEXEC)), end(memfd_create("end", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(front.get(), kStretch), 0);
    EXPECT_EQ(ftruncate(end.get(), kStretch), 0);
    auto* base = static_cast<char*>(mmap(nullptr, kStretch * kStretches, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (std::size_t i = 0; i < kStretches; ++i)
      mmap(base + i * kStretch, kStretch, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, i + 1 == kStretches ? end.get() : front.get(), 0);
    return base;
  };
  char* const source = reserve();
  char* const target = reserve();
  source[kCount - 1] = 3;
  const std::array<const void*, 2> from = {source, source};
  const std::array<void*, 1> to = {target};
  kernels().reduce({Dtype::u8, Op::sum}, from, to, kCount);
  EXPECT_EQ(target[kCount - 1], 6);
  EXPECT_EQ(target[kCount], 0);
  EXPECT_EQ(target[kCount - 1 - kStretch], 0);
  munmap(source, kStretch * kStretches);
  munmap(target, kStretch * kStretches);
}
#endif

TEST(KernelRules, TheBestSetIsUsedUntilTheProcessIsToldOtherwise) {
  EXPECT_EQ(runnable_kernels().front().name, "plain");
  EXPECT_EQ(&kernels(), &runnable_kernels().back());
  use_kernels("plain");
  EXPECT_EQ(kernels().name, "plain");
  use_kernels("");
  EXPECT_EQ(&kernels(), &runnable_kernels().back());
}

TEST(KernelRules, UnknownSetsAndMeaninglessCallsAreRefused) {
  try {
    use_kernels("mmx");
    FAIL() << "a set that does not exist was accepted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage);
    EXPECT_THAT(failure.what(), HasSubstr("\"mmx\""));
    EXPECT_THAT(failure.what(), HasSubstr("plain"));
  }
  float value = 1;
  const std::array<const void*, 1> from = {&value};
  const std::array<void*, 1> to = {&value};
  EXPECT_THROW(kernels().reduce({Dtype::f32, Op::average}, from, to, 1), Failure);
  EXPECT_THROW(kernels().reduce({Dtype::f32, Op::sum}, {}, to, 1), Failure);
}

}  // namespace
}  // namespace cohort::collective
