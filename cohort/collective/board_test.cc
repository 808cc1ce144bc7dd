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

// Three ranks of one board, as if each had mapped it.
struct Three {
  Three() {
    Segment first = Segment::create(Board::bytes_for(3), "board test", false);
    const SegmentName name = first.name();
    for (int r = 0; r < 3; ++r) {
      std::string why;
      boards.push_back(std::make_unique<Board>(std::move(*Segment::open(name, false, &why)), r, 3, Patience::for_ranks(3), Seconds{60}));
    }
  }
  void step() {
    for (const auto& board : boards) board->post(1, 0);
  }
  std::vector<int> all_of(int rank, int total) {
    std::vector<int> claimed;
    for (int b = boards[static_cast<std::size_t>(rank)]->claim(total); b >= 0; b = boards[static_cast<std::size_t>(rank)]->claim(total))
      claimed.push_back(b);
    return claimed;
  }
  std::vector<std::unique_ptr<Board>> boards;
};

TEST(Board, GivesEveryBlockOnceAndToEachRankItsOwnFirst) {
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  Three three;
  for (int round = 0; round < 3; ++round) {  // what is left of an earlier step does not count
    three.step();
    EXPECT_EQ(three.boards[2]->claim(7), 4);
    EXPECT_EQ(three.boards[0]->claim(7), 0);
    EXPECT_THAT(three.all_of(1, 7), ElementsAre(2, 3, 5, 6, 1)) << "its own, then those of rank 2, then of rank 0";
    EXPECT_THAT(three.all_of(0, 7), IsEmpty());
    three.step();
    EXPECT_THAT(three.all_of(2, 2), ElementsAre(1, 0)) << "fewer blocks than ranks";
    EXPECT_THAT(three.all_of(0, 2), IsEmpty());
    three.step();
    EXPECT_THAT(three.all_of(1, 0), IsEmpty());
  }
}

}  // namespace cohort::collective
