#include "cohort/collective/shared/control_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::collective {

TEST(SharedControlBlock, NamesTheMissingAsTheCommunicatorDoes) {
  SharedControlBlock control_block(Segment::create(SharedControlBlock::bytes_for(3), "control block test", false), 1, 3,
                                   SpinPolicy::for_ranks(3), Seconds{60});
  control_block.set_names({0, 4, 7});
  control_block.post(1, 0);
  try {
    control_block.await({.collective = Collective::barrier}, Deadline::in(10ms));
    FAIL() << "no other rank has posted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::timeout);
    EXPECT_THAT(failure.what(), ::testing::HasSubstr("missing: ranks 0, 7"));
  }
}

// Three ranks of one control block, as if each had mapped it.
struct Three {
  Three() {
    Segment first = Segment::create(SharedControlBlock::bytes_for(3), "control block test", false);
    const SegmentName name = first.name();
    for (int r = 0; r < 3; ++r) {
      std::string why;
      control_blocks.push_back(
          std::make_unique<SharedControlBlock>(std::move(*Segment::open(name, false, &why)), r, 3, SpinPolicy::for_ranks(3), Seconds{60}));
    }
  }
  void step() {
    for (const auto& control_block : control_blocks) control_block->post(1, 0);
  }
  std::vector<int> all_of(int rank, int total) {
    std::vector<int> claimed;
    for (int b = control_blocks[static_cast<std::size_t>(rank)]->claim(total); b >= 0;
         b = control_blocks[static_cast<std::size_t>(rank)]->claim(total))
      claimed.push_back(b);
    return claimed;
  }
  std::vector<std::unique_ptr<SharedControlBlock>> control_blocks;
};

TEST(SharedControlBlock, GivesEveryBlockOnceAndToEachRankItsOwnFirst) {
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  Three three;
  for (int round = 0; round < 3; ++round) {  // what is left of an earlier step does not count
    three.step();
    EXPECT_EQ(three.control_blocks[2]->claim(7), 4);
    EXPECT_EQ(three.control_blocks[0]->claim(7), 0);
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
