#include "cohort/elastic/coordinator_state.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort::elastic {
namespace {

Worker worker(int rank, std::uint64_t id) {
  return {WorkerId{id}, {Rank{rank}, fmt::format("127.0.0.1:{}", 100 + rank), 1000 + rank, "here"}};
}

std::vector<Entry> some_entries() {
  return {Opened{1},
          Formed{Epoch{1}, std::nullopt, {worker(0, 7), worker(1, 8)}, 0},
          Gone{WorkerId{8}},
          Respawned{1},
          ShardTransferred{WorkerId{7}, Rank{1}},
          Formed{Epoch{2}, 41, {worker(0, 7), worker(1, 9)}, 1},
          Opened{2},
          Left{1},
          ShardTransferred{WorkerId{7}, kNoRank},
          ShardTransferred{WorkerId{9}, Rank{0}},
          Finished{100}};
}

TEST(CoordinatorState, IsTheSumOfItsEntries) {
  const CoordinatorState c = replay(some_entries());
  EXPECT_EQ(c.term, 2u);
  EXPECT_EQ(c.epoch, Epoch{2});
  EXPECT_EQ(c.base, 41);
  EXPECT_EQ(c.rank_of(WorkerId{9}), Rank{1});
  EXPECT_FALSE(c.rank_of(WorkerId{8}));
  EXPECT_TRUE(c.gone.empty()) << "that was in an earlier roster";
  EXPECT_EQ(c.respawned, 1u);
  EXPECT_EQ(c.left, 1u);
  EXPECT_EQ(c.transferred, (std::map<WorkerId, Rank>{{WorkerId{7}, kNoRank}, {WorkerId{9}, Rank{0}}}));
  EXPECT_EQ(c.finished, 100);
}

TEST(CoordinatorState, EntriesAreDecodedAsTheyWereEncoded) {
  for (const Entry& entry : some_entries()) EXPECT_EQ(decode_entry(encode(entry)), entry);
}

TEST(CoordinatorState, RefusesEveryTruncationAndExtraBytes) {
  for (const Entry& entry : some_entries()) {
    auto bytes = encode(entry);
    for (std::size_t n = 0; n < bytes.size(); ++n)
      EXPECT_EQ(failure_of([&] { decode_entry(ConstBytes(bytes).first(n)); }).kind, Kind::corrupt) << n;
    bytes.push_back(std::byte{0});
    EXPECT_EQ(failure_of([&] { decode_entry(bytes); }).kind, Kind::corrupt);
  }
  const std::vector<std::byte> ones(64, std::byte{0xff});
  EXPECT_EQ(failure_of([&] { decode_entry(ones); }).kind, Kind::corrupt);
}

TEST(CoordinatorState, RefusesWhatCannotFollow) {
  const auto refuses = [](std::vector<Entry> entries) { return failure_of([&] { replay(entries); }).kind == Kind::corrupt; };
  EXPECT_TRUE(refuses({Opened{2}, Opened{2}})) << "a term may be used once";
  EXPECT_TRUE(refuses({Formed{Epoch{2}, 0, {worker(0, 7)}, 1}})) << "an epoch was skipped";
  EXPECT_TRUE(refuses({Formed{Epoch{1}, std::nullopt, {worker(0, 7), worker(1, 7)}, 0}})) << "one worker, two ranks";
  EXPECT_TRUE(refuses({Formed{Epoch{1}, std::nullopt, {worker(1, 7)}, 0}})) << "rank 1 at position 0";
  EXPECT_TRUE(refuses({Formed{Epoch{1}, 5, {worker(0, 7)}, 0}})) << "a state without a holder";
  EXPECT_TRUE(refuses({Gone{WorkerId{3}}})) << "not a member";
  const Formed two{Epoch{1}, std::nullopt, {worker(0, 7), worker(1, 8)}, 0};
  EXPECT_FALSE(refuses({two, ShardTransferred{WorkerId{8}, kNoRank}}));
  EXPECT_TRUE(refuses({two, ShardTransferred{WorkerId{9}, Rank{0}}})) << "not a member";
  for (const int odd : {2, -2, INT32_MIN}) EXPECT_TRUE(refuses({two, ShardTransferred{WorkerId{8}, Rank{odd}}})) << odd;
  EXPECT_TRUE(refuses({Respawned{2}, Respawned{1}}));
  EXPECT_FALSE(refuses({Left{2}, Left{1}})) << "another worker joined in its place";
  EXPECT_TRUE(refuses({Finished{3}, Formed{Epoch{1}, std::nullopt, {worker(0, 7)}, 0}})) << "training was over";
}

TEST(CoordinatorState, SpreadsNewcomersOverTheHoldersOfTheState) {
  CoordinatorState c;
  c.holders = 2;
  EXPECT_EQ(c.heal_source(Rank{1}), kNoRank);
  EXPECT_EQ(c.heal_source(Rank{2}), Rank{0});
  EXPECT_EQ(c.heal_source(Rank{3}), Rank{1});
  EXPECT_EQ(c.heal_source(Rank{4}), Rank{0});
  c.holders = 0;
  EXPECT_EQ(c.heal_source(Rank{0}), kNoRank) << "reads the disk";
  EXPECT_EQ(c.heal_source(Rank{3}), Rank{0});
}

}  // namespace
}  // namespace cohort::elastic
