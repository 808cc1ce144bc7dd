// Laws of all-reduce: equals the plain reference bit for bit (rows that are not canonical: on numbers whose sums are exact), the same bits
// on all ranks, for 1-9 ranks, any size, all types and operations, every row, on shared memory, links between threads and tcp.
#include "cohort/collective/operations/all_reduce.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cohort/collective/ranks.h"
#include "cohort/net/shm/shm.h"
#include "cohort/net/tcp/tcp.h"
#include "tests/laws/reference.h"

namespace cohort::collective {
namespace {

const std::vector<std::size_t> kSizes{0, 1, 3, 17, 1000, 2049};

void expect_bits(const Buffer& got, const Buffer& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  if (got == want) return;
  std::size_t at = 0;
  while (got[at] == want[at]) ++at;
  FAIL() << what << ": first difference at byte " << at << " of " << got.size();
}

std::vector<Buffer> inputs_of(Dtype dtype, std::size_t count, std::uint64_t seed, int ranks) {
  std::vector<Buffer> inputs;
  for (int r = 0; r < ranks; ++r) inputs.push_back(random_input(dtype, count, seed, r));
  return inputs;
}

void check(Communicator& comm, Dtype dtype, Op op, std::size_t count, std::string_view row, bool in_region, double pre = 1,
           double post = 1) {
  const auto inputs = inputs_of(dtype, count, count + 7, comm.size());
  Buffer mine = inputs[static_cast<std::size_t>(comm.rank().value)];
  const Region region = in_region ? comm.allocate(mine.size() + 1) : Region{};
  if (in_region && count > 0) std::memcpy(region.data(), mine.data(), mine.size());
  const Piece data = in_region ? Piece{region.data(), count, dtype, Device::cpu} : piece_of(mine, dtype);
  comm.all_reduce(data, op, {.name = "law", .prescale = pre, .postscale = post, .algorithm = row});
  if (in_region && count > 0) std::memcpy(mine.data(), region.data(), mine.size());
  expect_bits(mine, reference_reduce(dtype, op, inputs, pre, post),
              fmt::format("{} {} {} of {} on {} ranks", row, name_of(dtype), name_of(op), count, comm.size()));
}

void canonical_rows_on(const MakeLinks& make, int ranks, const std::vector<std::size_t>& sizes) {
  run_ranks(
      ranks,
      [&](Communicator& comm) {
        for (const AllReduce* row : all_reduce_rows()) {
          const bool shared = row->name == "zero_copy" || row->name == "staged";
          if (!row->canonical || (shared && comm.transport() == "tcp")) continue;
          for (const Dtype dtype : every_dtype())
            for (const Op op : every_op())
              for (const std::size_t count : sizes) {
                if (!reducible(dtype, op)) continue;
                if (comm.size() == 1 && shared) continue;  // one rank shares with no other
                check(comm, dtype, op, count, row->name, row->name == "zero_copy");
                if (::testing::Test::HasFatalFailure()) return;
              }
        }
      },
      {}, make);
}

}  // namespace

class AllReduceLaws : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AllReduceLaws, ::testing::Range(1, 10));

TEST_P(AllReduceLaws, CanonicalRowsGiveTheBracketsBitsOnSharedMemory) { canonical_rows_on(nullptr, GetParam(), kSizes); }

TEST_P(AllReduceLaws, CanonicalRowsGiveTheBracketsBitsOverTcp) {
  canonical_rows_on([](int ranks) { return net::tcp_world(ranks); }, GetParam(), {0, 1, 1000});
}

TEST_P(AllReduceLaws, CanonicalRowsGiveTheBracketsBitsOverRingsInSharedMemory) {
  canonical_rows_on([](int ranks) { return net::shm_world(ranks); }, GetParam(), {0, 1, 1000});
}

TEST_P(AllReduceLaws, ChunkingDoesNotChangeTheBits) {
  run_ranks(GetParam(), [](Communicator& comm) {
    for (const AllReduce* row : all_reduce_rows()) {
      if (!row->canonical) continue;
      if (comm.size() == 1 && (row->name == "zero_copy" || row->name == "staged")) continue;
      for (const std::size_t count : {70'000, 200'001}) check(comm, Dtype::f32, Op::sum, count, row->name, row->name == "zero_copy");
      check(comm, Dtype::bf16, Op::average, 300'001, row->name, row->name == "zero_copy");
    }
  });
}

TEST_P(AllReduceLaws, TheSelectorsChoiceGivesTheBracketsBitsWithScaling) {
  run_ranks(GetParam(), [](Communicator& comm) {
    for (const Dtype dtype : every_dtype())
      for (const std::size_t count : {0, 1, 12, 13, 5000, 40'000})
        for (const bool in_region : {false, true}) {
          check(comm, dtype, Op::sum, count, "", in_region);
          if (dtype != Dtype::boolean) check(comm, dtype, Op::average, count, "", in_region, 0.5, 3.0);
        }
  });
}

TEST_P(AllReduceLaws, RingSumsExactlyAndGivesAllRanksTheSameBits) {
  run_ranks(GetParam(), [](Communicator& comm) {
    for (const std::size_t count : {0, 1, 5, 1000, 100'003}) {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(static_cast<int>(i % 1000) * (comm.rank().value + 1));
      comm.all_reduce(piece(std::span(values)), Op::sum, {.algorithm = "ring"});
      const int n = comm.size();
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], static_cast<float>(static_cast<int>(i % 1000) * n * (n + 1) / 2));

      auto noise = random_input(Dtype::f64, count, 3, comm.rank().value);  // inexact sums: order matters, ranks must still agree
      comm.all_reduce(piece_of(noise, Dtype::f64), Op::sum, {.algorithm = "ring"});
      auto first = noise;
      comm.broadcast(piece_of(first, Dtype::f64), Rank{0});
      ASSERT_TRUE(first == noise);
    }
  });
}

TEST_P(AllReduceLaws, AGroupIsReducedPieceByPiece) {
  run_ranks(GetParam(), [](Communicator& comm) {
    std::vector<float> a(10, 1.0F);
    std::vector<std::int64_t> b(100'000, comm.rank().value);
    std::vector<double> c;
    const std::vector<Piece> pieces{piece(std::span(a)), piece(std::span(b)), piece(std::span(c))};
    comm.all_reduce(pieces, Op::sum, {.name = "group"});
    EXPECT_EQ(a[9], static_cast<float>(comm.size()));
    EXPECT_EQ(b[99'999], comm.size() * (comm.size() - 1) / 2);
  });
}

}  // namespace cohort::collective
