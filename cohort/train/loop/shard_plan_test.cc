#include "cohort/train/loop/shard_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::train {
namespace {

using testing::ElementsAre;

constexpr auto kOwner = ShardSource::owner, kTransferred = ShardSource::transferred, kBuddy = ShardSource::buddy;

ShardPiece piece_of(std::int64_t first, std::int64_t count, ShardSource source, int holder) { return {0, first, count, source, holder}; }

TEST(ShardPlan, AnOwnersPieceGoesBeforeATransferredOneAndThatBeforeABuddyCopy) {
  const std::vector<ShardPiece> all{piece_of(0, 4, kBuddy, 1), piece_of(0, 4, kOwner, 0), piece_of(4, 3, kBuddy, 2),
                                    piece_of(4, 3, kTransferred, 0), piece_of(7, 1, kBuddy, 0)};
  EXPECT_THAT(cover(all, 8), ElementsAre(piece_of(0, 4, kOwner, 0), piece_of(4, 3, kTransferred, 0), piece_of(7, 1, kBuddy, 0)));
}

TEST(ShardPlan, PiecesOfTwoLayoutsCoverATensorTogether) {
  const std::vector<ShardPiece> all{piece_of(0, 3, kOwner, 0), piece_of(3, 3, kOwner, 1), piece_of(0, 5, kOwner, 2),
                                    piece_of(5, 5, kOwner, 1)};
  EXPECT_THAT(cover(all, 10), ElementsAre(piece_of(0, 5, kOwner, 2), piece_of(5, 5, kOwner, 1)))
      << "the longest of those that have the next element";
  const std::vector<ShardPiece> lost{piece_of(0, 3, kOwner, 0), piece_of(2, 8, kBuddy, 1)};
  EXPECT_THAT(cover(lost, 10), ElementsAre(piece_of(0, 3, kOwner, 0), piece_of(2, 8, kBuddy, 1)))
      << "elements may come twice, with the same values";
}

TEST(ShardPlan, AMissingElementEndsTheCover) {
  const std::vector<ShardPiece> gap{piece_of(0, 3, kOwner, 0), piece_of(6, 4, kOwner, 2)};
  EXPECT_FALSE(covers(cover(gap, 10), 10));
  EXPECT_FALSE(covers(cover(gap, 4), 4));
  EXPECT_TRUE(covers(cover(gap, 3), 3));
  EXPECT_FALSE(covers(cover({}, 1), 1));
  EXPECT_TRUE(covers(cover({}, 0), 0)) << "a tensor without elements";
  EXPECT_FALSE(covers(cover(std::span(gap).subspan(1), 10), 10)) << "not even the first element";
}

TEST(ShardPlan, AListTravelsAsNumbersAndIsSortedByKey) {
  const std::vector<std::int64_t> list{1, 0, 5, 0, 0, 2, 3, 2};
  const auto pieces = read_pieces(list, 4);
  EXPECT_THAT(pieces, ElementsAre(ShardPiece{1, 0, 5, kOwner, 4}, ShardPiece{0, 2, 3, kBuddy, 4}));
  EXPECT_THAT(by_key(pieces, 3), ElementsAre(ElementsAre(pieces[1]), ElementsAre(pieces[0]), ElementsAre()));
}

TEST(ShardPlan, ShardsGoToTheNextRankThatStaysCountedInARing) {
  const std::vector<std::int32_t> leaving{0, 1, 1, 0, 1};
  EXPECT_EQ(successor_of(Rank{1}, leaving), Rank{3});
  EXPECT_EQ(successor_of(Rank{2}, leaving), Rank{3});
  EXPECT_EQ(successor_of(Rank{4}, leaving), Rank{0});
}

TEST(ShardPlan, ShardsHaveNoSuccessorWhenAllLeave) {
  const std::vector<std::int32_t> all{1, 1, 1}, alone{1};
  EXPECT_EQ(successor_of(Rank{1}, all), kNoRank);
  EXPECT_EQ(successor_of(Rank{0}, alone), kNoRank);
}

}  // namespace
}  // namespace cohort::train
