// Each rule set against its closed form, over scripted sequences: '.' is a good step, 'x' an overflow.
#include "cohort/optim/loss_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cohort/base/failure_of.h"

namespace cohort::optim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The scale after every step.
std::vector<double> scales(LossScale& scale, std::string_view script) {
  std::vector<double> all;
  for (const char c : script) {
    scale.update(c == 'x');
    all.push_back(scale.value());
  }
  return all;
}

std::vector<double> scales(const char* spec, std::string_view script) {
  LossScale scale = LossScale::parse(spec);
  return scales(scale, script);
}

double after(LossScale scale, std::int64_t good) {
  for (std::int64_t i = 0; i < good; ++i) scale.update(false);
  return scale.value();
}

TEST(LossScale, DefaultsAreTheFrameworks) {
  struct Row {
    const char* spec;
    double init;
    std::int64_t window;  // good steps until the first growth
  };
  for (const Row& row : {Row{"torch", 65536, 2000}, Row{"deepspeed", 65536, 1001}}) {
    const LossScale scale = LossScale::parse(row.spec);
    EXPECT_EQ(scale.value(), row.init) << row.spec;
    EXPECT_EQ(after(scale, row.window - 1), row.init) << row.spec;
    EXPECT_EQ(after(scale, row.window), 2 * row.init) << row.spec;
  }
}

TEST(LossScale, TorchFallsAtEveryOverflowAndGrowsAfterWindowGoodSteps) {
  EXPECT_THAT(scales("torch(init=8, window=3)", "..x...xx...."), ElementsAre(8, 8, 4, 4, 4, 8, 4, 2, 2, 2, 4, 4));
  EXPECT_THAT(scales("torch(init=9, up=3, down=0.25, window=1)", ".x."), ElementsAre(27, 6.75, 20.25));
}

// good steps only: scale_t = init * up^floor(t / window); overflows only: init * down^t.
TEST(LossScale, TorchIsItsClosedForm) {
  LossScale rising = LossScale::parse("torch(init=2, window=7)"), falling = LossScale::parse("torch");
  for (int t = 1; t <= 100; ++t) {
    rising.update(false);
    EXPECT_EQ(rising.value(), 2 * std::exp2(t / 7));
    falling.update(true);
    EXPECT_EQ(falling.value(), std::exp2(16 - t)) << "no floor";
    EXPECT_EQ(falling.skipped(), t);
  }
}

TEST(LossScale, ScalesStayWhatFp32CanHold) {
  LossScale rising = LossScale::parse("torch(window=1)"), falling = LossScale::parse("torch");
  for (int t = 0; t < 400; ++t) rising.update(false), falling.update(true);
  EXPECT_EQ(rising.value(), std::exp2(127));
  EXPECT_EQ(falling.value(), std::exp2(-126));
  EXPECT_TRUE(std::isfinite(1 / static_cast<float>(falling.value())));
}

// The first growth comes on call window + 1, later ones every window; hysteresis is full again after a growth only.
TEST(LossScale, DeepSpeedIsOneStepLateAndSparesTheFirstOverflow) {
  EXPECT_THAT(scales("deepspeed(init=8, window=2)", "......."), ElementsAre(8, 8, 16, 16, 32, 32, 64));
  EXPECT_THAT(scales("deepspeed(init=8, window=2)", "x.x.x...x"), ElementsAre(8, 8, 4, 4, 2, 2, 2, 4, 4));
  EXPECT_THAT(scales("deepspeed(init=8, window=2, hysteresis=1)", "xx"), ElementsAre(4, 2));
}

TEST(LossScale, DeepSpeedsConsecutiveHysteresisRefillsWithEveryGoodStep) {
  EXPECT_THAT(scales("deepspeed(init=8, window=9, consecutive_hysteresis=true)", "x.x.xx.x"), ElementsAre(8, 8, 8, 8, 8, 4, 4, 4));
}

TEST(LossScale, DeepSpeedFailsWhenItOverflowsAtItsFloor) {
  LossScale scale = LossScale::parse("deepspeed(init=3, hysteresis=1)");
  EXPECT_THAT(scales(scale, "xx"), ElementsAre(1.5, 1)) << "clamped on the way";
  const ScaleState before = scale.state();
  const auto error = failure_of([&] { scale.update(true); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, HasSubstr("cannot fall below 1 (now 1"));
  EXPECT_EQ(scale.state(), before);
}

TEST(LossScale, NoneAndConstantOnlyCount) {
  LossScale none = LossScale::parse("none"), constant = LossScale::parse("constant(init=128)");
  EXPECT_FALSE(none.scales());
  EXPECT_TRUE(constant.scales());
  EXPECT_THAT(scales(none, ".x"), ElementsAre(1, 1));
  EXPECT_THAT(scales(constant, ".xx"), ElementsAre(128, 128, 128));
  EXPECT_EQ(none.skipped(), 1);
  EXPECT_EQ(constant.skipped(), 2);
}

// Saved anywhere in a random story and read back as text, every rule goes on exactly as it would have.
TEST(LossScale, GoesOnFromItsSavedStateBitForBit) {
  constexpr unsigned kSeed = 11;
  for (const char* spec : {"torch(init=3.3, up=1.7, down=0.3, window=3)", "deepspeed(window=2, init=1e6)",
                           "deepspeed(window=2, init=1e6, consecutive_hysteresis=true)", "constant", "none"}) {
    std::mt19937 random(kSeed);
    LossScale whole = LossScale::parse(spec);
    for (int t = 0; t < 60; ++t) {
      LossScale again = LossScale::parse(spec);
      again.restore(scale_state_of(to_text(whole.state())), whole.spec());
      ASSERT_EQ(again.state(), whole.state()) << spec << " seed " << kSeed << " step " << t;
      LossScale copy = whole;
      for (int k = 0; k < 6; ++k) {
        const bool overflow = random() % 4 == 0;
        again.update(overflow);
        copy.update(overflow);
        ASSERT_EQ(again.state(), copy.state()) << spec << " seed " << kSeed << " step " << t;
      }
      whole.update(random() % 4 == 0);
    }
  }
}

TEST(LossScale, AnotherRuleKeepsTheScaleInsideItsLimitsAndTheCount) {
  LossScale old = LossScale::parse("torch(init=4)");
  scales(old, "xxxx");
  LossScale next = LossScale::parse("deepspeed");
  next.restore(old.state(), old.spec());
  EXPECT_EQ(next.value(), 1);
  EXPECT_EQ(next.skipped(), 4);
  LossScale first = LossScale::parse("torch");
  first.restore(LossScale::parse("none").state(), "none");
  EXPECT_EQ(first.value(), 65536) << "who did not scale has no scale to hand on";
}

TEST(LossScale, RuleSetsOfFormerVersionsAreRefusedWithWhatTakesTheirPlace) {
  const auto why = [](const char* spec) { return failure_of([&] { LossScale::parse(spec); }).what; };
  EXPECT_THAT(why("megatron(window=500)"), HasSubstr("say deepspeed(init=4294967296)"));
  EXPECT_THAT(why("colossalai"), HasSubstr("say deepspeed(min=0)"));
  EXPECT_THAT(why("fairscale"), HasSubstr("say torch(init=32768)"));
  for (const char* now : {"deepspeed(init=4294967296)", "deepspeed(min=0)", "torch(init=32768)"})
    EXPECT_TRUE(LossScale::parse(now).scales());
}

TEST(LossScale, WhatCannotBeIsRefusedWithTheReason) {
  const auto why = [](const char* spec) { return failure_of([&] { LossScale::parse(spec); }).what; };
  EXPECT_THAT(why("troch"), HasSubstr("did you mean 'torch'?"));
  EXPECT_THAT(why("torch(hysteresis=2)"), HasSubstr("hysteresis"));
  EXPECT_THAT(why("torch(init=0)"), HasSubstr("init"));
  EXPECT_THAT(why("deepspeed(init=0.5)"), HasSubstr("it starts at 0.5"));
  for (const char* text :
       {"", "scale=0x1p+16", "scale=1 good=0 spare=0 since=0 bad=0 skipped=0", "scale=0x1p+16 good=0 spare=0 since=0 bad=0 skipped=0x",
        "scale=0x0p+0 good=0 spare=0 since=0 bad=0 skipped=0", "good=0x1p+1 scale=0 spare=0 since=0 bad=0 skipped=0"})
    EXPECT_EQ(failure_of([&] { scale_state_of(text); }).kind, Kind::corrupt) << text;
}

}  // namespace
}  // namespace cohort::optim
