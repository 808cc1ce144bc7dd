#include "cohort/collective/board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::collective {

TEST(Board, NamesTheMissingAsTheCommunicatorDoes) {
  Board board(Segment::create(Board::bytes_for(3), "board test", false), 1, 3, Patience::for_ranks(3), Seconds{60});
  board.set_names({0, 4, 7});
  board.post(1, 0);
  try {
    board.await({.verb = Verb::barrier}, Deadline::in(10ms));
    FAIL() << "nobody else has posted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::timeout);
    EXPECT_THAT(failure.what(), ::testing::HasSubstr("missing: ranks 0, 7"));
  }
}

}  // namespace cohort::collective
