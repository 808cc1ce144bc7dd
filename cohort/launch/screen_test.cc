#include "cohort/launch/screen.h"

#include <gtest/gtest.h>

namespace cohort::launch {
namespace {

const Clock::time_point kStart{};

TEST(Screen, PutsTheRankBeforeEveryLineAndKeepsTheStreamsApart) {
  Screen s({});
  s.write(0, 1, "a\nb\n", kStart);
  s.write(1, 2, "oops\n", kStart);
  EXPECT_EQ(s.pending(1), "[0] a\n[0] b\n");
  EXPECT_EQ(s.pending(2), "[1] oops\n");
}

TEST(Screen, LinesOfTwoRanksNeverMix) {
  Screen s({});
  s.write(0, 1, "hel", kStart);
  s.write(1, 1, "wor", kStart);
  s.write(0, 1, "lo\n", kStart);
  s.write(1, 1, "ld\n", kStart);
  EXPECT_EQ(s.pending(1), "[0] hello\n[1] world\n");
}

TEST(Screen, AnUnfinishedLineAppearsAfterAMomentAndIsContinued) {
  Screen s({});
  s.write(0, 1, "name? ", kStart);
  s.show_idle(kStart + Screen::kHold / 2);
  EXPECT_EQ(s.pending(1), "");
  EXPECT_EQ(s.next_idle().at(), kStart + Screen::kHold);
  s.show_idle(kStart + Screen::kHold);
  EXPECT_EQ(s.pending(1), "[0] name? ");
  EXPECT_TRUE(s.next_idle().never());
  s.write(0, 1, "thanks\n", kStart);
  EXPECT_EQ(s.pending(1), "[0] name? thanks\n");
}

TEST(Screen, WhoeverWritesAfterAnOpenLineBeginsANewOne) {
  Screen s({.one_sink = true});
  s.write(0, 1, "name? ", kStart);
  s.show_idle(kStart + Screen::kHold);
  s.write(1, 2, "line\n", kStart);
  s.write(0, 1, "thanks\n", kStart);
  s.say("cohort run: note");
  EXPECT_EQ(s.pending(2), "[0] name? \n[1] line\n[0] thanks\ncohort run: note\n");
}

TEST(Screen, ALineTakesThePlaceOfABarOnATerminal) {
  Screen s({.prefix = false, .over_bar = {true, false}});
  s.write(0, 1, "epoch 1\nepoch 2\n", kStart);
  s.write(0, 2, "into a file\n", kStart);
  EXPECT_EQ(s.pending(1), "\r\033[Kepoch 1\n\r\033[Kepoch 2\n");
  EXPECT_EQ(s.pending(2), "into a file\n");
}

TEST(Screen, CarriageReturnsRedrawTheRanksOwnLine) {
  Screen s({});
  s.write(0, 2, "\r 10%", kStart);
  s.write(0, 2, "\r 20%", kStart);
  s.write(0, 2, "\r100%\n", kStart);
  EXPECT_EQ(s.pending(2), "\r[0]  10%\r[0]  20%\r[0] 100%\n");
  s.pending(2).clear();
  s.write(0, 2, "dos\r", kStart);
  s.write(0, 2, "\nline\r\n", kStart);
  EXPECT_EQ(s.pending(2), "[0] dos\r\n[0] line\r\n");
}

TEST(Screen, EmptyLinesKeepTheirPrefix) {
  Screen s({});
  s.write(3, 1, "\n\nx\n", kStart);
  EXPECT_EQ(s.pending(1), "[3] \n[3] \n[3] x\n");
}

TEST(Screen, TheLastLineIsFinishedEvenWhenTheRankDidNot) {
  Screen s({});
  s.write(0, 1, "no newline", kStart);
  s.finish(0, 1);
  s.finish_all();
  EXPECT_EQ(s.pending(1), "[0] no newline\n");
}

TEST(Screen, WithoutPrefixTheBytesAreTheRanksOwn) {
  Screen s({.prefix = false});
  s.write(0, 1, "a\r\nb", kStart);
  s.finish_all();
  EXPECT_EQ(s.pending(1), "a\r\nb");
}

TEST(Screen, ColoursOnlyThePrefix) {
  Screen s({.color = {true, false}});
  s.write(0, 1, "x\n", kStart);
  s.write(0, 2, "x\n", kStart);
  EXPECT_EQ(s.pending(1), "\033[36m[0]\033[0m x\n");
  EXPECT_EQ(s.pending(2), "[0] x\n");
}

TEST(Screen, AnEndlessLineIsShownInParts) {
  Screen s({});
  s.write(0, 1, std::string(100'000, 'x'), kStart);
  EXPECT_EQ(s.pending(1).size(), 100'004u);
}

}  // namespace
}  // namespace cohort::launch
