#include "cohort/train/loop/left_out_saves.h"

#include <gtest/gtest.h>

namespace cohort::train {
namespace {

using Say = LeftOutSaves::Say;

Clock::time_point moment(double seconds) {
  return Clock::time_point{} + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

TEST(LeftOutSaves, EpochsShorterThanAWriteAreNoAlarm) {
  LeftOutSaves saves;
  saves.submitted(moment(100));
  int told = 0;
  for (int k = 1; k <= 100; ++k) {
    const Say say = saves.add(moment(100 + 0.01 * k));
    EXPECT_NE(say, Say::alarm) << k;
    told += say == Say::note;
  }
  EXPECT_EQ(told, 6);  // 1, 4, 8, 16, 32, 64
}

TEST(LeftOutSaves, AWriteThatLastsIsAnAlarmOnce) {
  LeftOutSaves saves;
  saves.submitted(moment(100));
  EXPECT_EQ(saves.add(moment(101)), Say::note);
  EXPECT_EQ(saves.add(moment(101.5)), Say::nothing);
  EXPECT_EQ(saves.add(moment(102.5)), Say::alarm);
  EXPECT_EQ(saves.in_a_row(), 3);
  EXPECT_EQ(saves.add(moment(103)), Say::note);
  EXPECT_EQ(saves.add(moment(200)), Say::nothing);
}

TEST(LeftOutSaves, OneAloneIsNoAlarmHoweverLongItLasts) {
  LeftOutSaves saves;
  saves.submitted(moment(100));
  EXPECT_EQ(saves.add(moment(1000)), Say::note);
  EXPECT_EQ(saves.add(moment(1001)), Say::alarm);
  saves.written();
  saves.submitted(moment(1002));
  EXPECT_EQ(saves.add(moment(1002.5)), Say::note);
}

}  // namespace
}  // namespace cohort::train
