#include "cohort/observe/progress.h"

#include <gmock/gmock.h>

#include <limits>

#include "cohort/observe/text.h"

namespace cohort::observe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const ProgressState kState{
    .label = "epoch 2/10", .done = 320, .total = 938, .elapsed = 10, .rate = 32100, .steps_per_second = 32, .values = {{"loss", 0.4123}}};

TEST(Progress, LooksAsPeopleKnowIt) {
  EXPECT_EQ(format_progress(kState, {.width = 79}), "epoch 2/10  34%|███▍      | 320/938 [00:10<00:19, 32.1 k samples/s, loss=0.412]");
  EXPECT_EQ(format_progress(kState, {.bar = false}), "epoch 2/10  34% 320/938 [00:10<00:19, 32.1 k samples/s, loss=0.412]");
}

TEST(Progress, FillsTheWidthAndNeverMore) {
  for (std::size_t width = 1; width < 140; ++width) {
    const auto line = format_progress(kState, {.width = width});
    EXPECT_LE(columns(line), width);
    if (width > 73 && width < 120) {
      EXPECT_EQ(columns(line), width) << line;
    }
  }
  EXPECT_THAT(format_progress(kState, {.width = 79, .color = true}), HasSubstr("\x1b[32m███▍      \x1b[0m"));
  EXPECT_THAT(format_progress(kState, {.width = 79, .ascii = true}), HasSubstr("|###       |"));
}

TEST(Progress, WithoutATotalThereIsNoBarAndNoEstimate) {
  EXPECT_EQ(format_progress({.label = "", .done = 7, .elapsed = 3}, {.width = 79}), "7 [00:03]");
  EXPECT_EQ(format_progress({.label = "x", .done = 0, .total = 5}, {.bar = false}), "x   0% 0/5 [00:00<?]");
  EXPECT_THAT(format_progress({.label = "x", .done = 9, .total = 5}, {.bar = false}), HasSubstr("100% 9/5 [00:00<00:00]"))
      << "more than there was";
  EXPECT_THAT(format_progress({.label = "a\x1b[2J\n", .done = 1}, {}), Not(HasSubstr("\x1b")));
}

TEST(Progress, PartsReadWell) {
  EXPECT_EQ(format_clock(9.6), "00:10");
  EXPECT_EQ(format_clock(3723), "1:02:03");
  EXPECT_EQ(format_clock(-1), "?");
  EXPECT_EQ(format_clock(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(format_rate(0.5, "it"), "0.50 it/s");
  EXPECT_EQ(format_rate(999.6, "it"), "1.00 k it/s");
  EXPECT_EQ(format_rate(41000, "images"), "41.0 k images/s");
  EXPECT_EQ(format_bar(0, 3), "   ");
  EXPECT_EQ(format_bar(0.5, 3), "█▌ ");
  EXPECT_EQ(format_bar(1, 3), "███");
  EXPECT_EQ(format_bar(7, 3), "███");
  EXPECT_EQ(format_bar(std::numeric_limits<double>::quiet_NaN(), 3), "   ");
}

// A Progress with a clock that is set by hand and an output that is kept.
struct Rig {
  double now = 0;
  std::size_t width = 80;
  std::vector<std::string> out;
  ProgressOptions options() {
    return {.fd = -1,
            .clock = [this] { return now; },
            .write = [this](std::string_view text) { out.emplace_back(text); },
            .width = [this] { return width; }};
  }
};

TEST(Progress, RedrawsInPlaceAtMostTenTimesASecond) {
  Rig rig;
  Progress progress(rig.options());
  progress.start("epoch 1/1", 1000, 64);
  for (std::uint64_t step = 1; step <= 1000; ++step) {
    rig.now += 0.001;
    progress.update(step, {{"loss", 0.5}});
  }
  EXPECT_LE(rig.out.size(), 11U);
  EXPECT_GE(rig.out.size(), 9U);
  progress.finish();
  for (std::size_t i = 0; i + 1 < rig.out.size(); ++i) {
    EXPECT_THAT(rig.out[i], testing::StartsWith("\r"));
    EXPECT_THAT(rig.out[i], Not(HasSubstr("\n")));
  }
  EXPECT_THAT(rig.out[rig.out.size() - 2], HasSubstr("100%"));
  EXPECT_THAT(rig.out[rig.out.size() - 2], HasSubstr("64.0 k samples/s"));
  EXPECT_EQ(rig.out.back(), "\n");
}

TEST(Progress, InAPipeItIsALineEveryTenSecondsAndOneAtTheEnd) {
  Rig rig{.width = 0};
  Progress progress(rig.options());
  progress.start("epoch 1/2", 250, 10);
  for (std::uint64_t second = 1; second <= 25; ++second) {
    rig.now += 1;
    progress.update(10 * second);
  }
  progress.finish();
  EXPECT_THAT(rig.out,
              ElementsAre("epoch 1/2  40% 100/250 [00:10<00:15, 100 samples/s]\n", "epoch 1/2  80% 200/250 [00:20<00:05, 100 samples/s]\n",
                          "epoch 1/2 100% 250/250 [00:25<00:00, 100 samples/s]\n"));
}

TEST(Progress, FollowsTheWindowAndClearsTheLineForOtherOutput) {
  Rig rig;
  {
    Progress progress(rig.options());
    progress.start("x", 10);
    progress.update(1);
    rig.now += 1;
    rig.width = 40;
    progress.update(2);
    EXPECT_LE(columns(rig.out.back()), 39U + 4U) << "and the codes around it";
    progress.clear();
    EXPECT_EQ(rig.out.back(), "\r\x1b[K");
    progress.update(3);
    EXPECT_THAT(rig.out.back(), HasSubstr("3/10")) << "at once";
  }
  EXPECT_EQ(rig.out.back(), "\n") << "a bar never stays in front of the prompt";
}

TEST(Progress, OutsideOfARunUpdatesDrawNothing) {
  Rig rig;
  Progress progress(rig.options());
  progress.update(1);
  progress.finish();
  progress.clear();
  EXPECT_TRUE(rig.out.empty());
}

}  // namespace
}  // namespace cohort::observe
