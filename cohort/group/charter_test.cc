#include "cohort/group/charter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort::group {
namespace {

Worker worker(int rank, std::uint64_t id) {
  return {WorkerId{id}, {Rank{rank}, fmt::format("127.0.0.1:{}", 100 + rank), 1000 + rank, "here"}};
}

std::vector<Entry> some_life() {
  return {Opened{1},
          Formed{Epoch{1}, std::nullopt, {worker(0, 7), worker(1, 8)}, 0},
          Gone{WorkerId{8}},
          Respawned{1},
          Handed{WorkerId{7}, Rank{1}},
          Formed{Epoch{2}, 41, {worker(0, 7), worker(1, 9)}, 1},
          Opened{2},
          Left{1},
          Handed{WorkerId{7}, kNoRank},
          Handed{WorkerId{9}, Rank{0}},
          Finished{100}};
}

TEST(Charter, IsTheSumOfItsEntries) {
  const Charter c = replay(some_life());
  EXPECT_EQ(c.term, 2u);
  EXPECT_EQ(c.epoch, Epoch{2});
  EXPECT_EQ(c.base, 41);
  EXPECT_EQ(c.rank_of(WorkerId{9}), Rank{1});
  EXPECT_FALSE(c.rank_of(WorkerId{8}));
  EXPECT_TRUE(c.gone.empty()) << "of an earlier roster";
  EXPECT_EQ(c.respawned, 1u);
  EXPECT_EQ(c.left, 1u);
  EXPECT_EQ(c.handed, (std::map<WorkerId, Rank>{{WorkerId{7}, kNoRank}, {WorkerId{9}, Rank{0}}}));
  EXPECT_EQ(c.finished, 100);
}

TEST(Charter, EntriesSurviveTheirJourney) {
  for (const Entry& entry : some_life()) EXPECT_EQ(decode_entry(encode(entry)), entry);
}

TEST(Charter, RefusesEveryTruncationAndExtraBytes) {
  for (const Entry& entry : some_life()) {
    auto bytes = encode(entry);
    for (std::size_t n = 0; n < bytes.size(); ++n)
      EXPECT_EQ(failure_of([&] { decode_entry(ConstBytes(bytes).first(n)); }).kind, Kind::corrupt) << n;
    bytes.push_back(std::byte{0});
    EXPECT_EQ(failure_of([&] { decode_entry(bytes); }).kind, Kind::corrupt);
  }
  const std::vector<std::byte> ones(64, std::byte{0xff});
  EXPECT_EQ(failure_of([&] { decode_entry(ones); }).kind, Kind::corrupt);
}

TEST(Charter, RefusesWhatCannotFollow) {
  const auto refuses = [](std::vector<Entry> entries) { return failure_of([&] { replay(entries); }).kind == Kind::corrupt; };
  EXPECT_TRUE(refuses({Opened{2}, Opened{2}})) << "a term may be used once";
  EXPECT_TRUE(refuses({Formed{Epoch{2}, 0, {worker(0, 7)}, 1}})) << "an epoch was skipped";
  EXPECT_TRUE(refuses({Formed{Epoch{1}, std::nullopt, {worker(0, 7), worker(1, 7)}, 0}})) << "one worker, two ranks";
  EXPECT_TRUE(refuses({Formed{Epoch{1}, std::nullopt, {worker(1, 7)}, 0}})) << "rank 1 in place 0";
  EXPECT_TRUE(refuses({Formed{Epoch{1}, 5, {worker(0, 7)}, 0}})) << "a state that nobody holds";
  EXPECT_TRUE(refuses({Gone{WorkerId{3}}})) << "never was there";
  const Formed two{Epoch{1}, std::nullopt, {worker(0, 7), worker(1, 8)}, 0};
  EXPECT_FALSE(refuses({two, Handed{WorkerId{8}, kNoRank}}));
  EXPECT_TRUE(refuses({two, Handed{WorkerId{9}, Rank{0}}})) << "who is no member has nothing";
  for (const int odd : {2, -2, INT32_MIN}) EXPECT_TRUE(refuses({two, Handed{WorkerId{8}, Rank{odd}}})) << odd;
  EXPECT_TRUE(refuses({Respawned{2}, Respawned{1}}));
  EXPECT_FALSE(refuses({Left{2}, Left{1}})) << "somebody came in the place of one";
  EXPECT_TRUE(refuses({Finished{3}, Formed{Epoch{1}, std::nullopt, {worker(0, 7)}, 0}})) << "training was over";
}

TEST(Charter, SpreadsNewcomersOverThoseWhoHoldTheState) {
  Charter c;
  c.holders = 2;
  EXPECT_EQ(c.heals_from(Rank{1}), kNoRank);
  EXPECT_EQ(c.heals_from(Rank{2}), Rank{0});
  EXPECT_EQ(c.heals_from(Rank{3}), Rank{1});
  EXPECT_EQ(c.heals_from(Rank{4}), Rank{0});
  c.holders = 0;
  EXPECT_EQ(c.heals_from(Rank{0}), kNoRank) << "reads the disk";
  EXPECT_EQ(c.heals_from(Rank{3}), Rank{0});
}

}  // namespace
}  // namespace cohort::group
