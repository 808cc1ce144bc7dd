#include "cohort/base/ids.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "cohort/base/bytes.h"

namespace cohort {
namespace {

static_assert(!std::is_convertible_v<int, Rank> && !std::is_convertible_v<Rank, Epoch>, "numbers that mean different things do not mix");

TEST(Ids, ARankKnowsWhetherItIsOne) {
  EXPECT_FALSE(kNoRank);
  EXPECT_TRUE(Rank{0});
  EXPECT_LT(Rank{1}, Rank{2});
}

TEST(Ids, ATagRangeHoldsBothItsEndsOfOneChannel) {
  constexpr TagRange range{.channel = 7, .first = 10, .last = 20};
  EXPECT_TRUE(range.holds({7, 10}));
  EXPECT_TRUE(range.holds({7, 20}));
  EXPECT_FALSE(range.holds({7, 9}));
  EXPECT_FALSE(range.holds({7, 21}));
  EXPECT_FALSE(range.holds({8, 15}));
}

TEST(Bytes, LiteralsRoundingAndViews) {
  EXPECT_EQ(3_KiB, 3072U);
  EXPECT_EQ(1_GiB, 1024_MiB);
  EXPECT_EQ(round_up(0, 64), 0U);
  EXPECT_EQ(round_up(65, 64), 128U);
  std::uint32_t word = 0;
  writable_bytes_of(word)[0] = std::byte{5};
  EXPECT_EQ(word, 5U) << "little endian";
  EXPECT_EQ(bytes_of(word).size(), 4U);
}

}  // namespace
}  // namespace cohort
