// Laws of collectives over several hosts: ranks of a host share memory, hosts are joined by tcp. All-reduce rows equal the reference bit
// for bit where they say that they follow the bracket, all others on numbers whose sums are exact; the same bits on all ranks, and again.
#include "cohort/collective/plans/hosts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cohort/collective/operations/all_reduce.h"
#include "cohort/collective/ranks.h"
#include "cohort/net/mixed.h"
#include "tests/laws/reference.h"

namespace cohort::collective {
namespace {

using Split = std::vector<int>;
constexpr std::size_t kTwoChunks = 2_MiB + 70;  // bytes: a chunk is 2 MiB, the second one is short

// Where ranks live: in order and even, in order and odd, scattered; 1 to 9 ranks.
const std::vector<Split>& splits() {
  static const std::vector<Split> all{{0},
                                      {0, 1},
                                      {0, 0, 1},
                                      {0, 1, 1},
                                      {0, 0, 1, 1},
                                      {0, 1, 2, 2},
                                      {0, 1, 0, 1},
                                      {0, 0, 0, 1, 1},
                                      {0, 0, 1, 1, 2, 2},
                                      {1, 0, 0, 2, 1, 0, 1},
                                      {0, 0, 0, 0, 1, 1, 1, 1},
                                      {0, 0, 0, 0, 1, 1, 1, 1, 2}};
  return all;
}

Shape shape_of(const Split& split) {
  const Hosts hosts(split);
  return {.ranks = static_cast<int>(split.size()),
          .hosts = hosts.count(),
          .fewest = hosts.fewest(),
          .most = hosts.most(),
          .nested = hosts.nested()};
}

// Rows that can be used for these hosts.
std::vector<const AllReduce*> rows_for(const Split& split, bool canonical) {
  std::vector<const AllReduce*> rows;
  for (const AllReduce* row : all_reduce_rows())
    if (row->name != "zero_copy" && row->name != "staged" && row->canonical_for(shape_of(split)) == canonical) rows.push_back(row);
  return rows;
}

void run(const Split& split, const std::function<void(Communicator&)>& body, Options options = {}) {
  SCOPED_TRACE(fmt::format("ranks on hosts {}", fmt::join(split, "")));
  run_ranks(static_cast<int>(split.size()), body, std::move(options), [&](int) { return net::mixed_world(split); });
}

// What ranks put in and must get out: worked out once, for all of them and all rows.
struct Case {
  Dtype dtype;
  Op op;
  std::size_t count;
  bool in_region;
  double pre = 1, post = 1;
  std::vector<Buffer> inputs{};
  Buffer expected{};
};

std::vector<Case> worked_out(std::vector<Case> cases, std::size_t ranks) {
  for (Case& c : cases) {
    for (std::size_t r = 0; r < ranks; ++r) c.inputs.push_back(random_input(c.dtype, c.count, c.count + 7, static_cast<int>(r)));
    c.expected = reference_reduce(c.dtype, c.op, c.inputs, c.pre, c.post);
  }
  return cases;
}

void expect_all(Communicator& comm, const std::vector<Case>& cases, std::string_view row) {
  std::size_t most = 1;
  for (const Case& c : cases) most = std::max(most, c.expected.size());
  const Region region = comm.allocate(most);
  for (const Case& c : cases) {
    Buffer mine = c.inputs[static_cast<std::size_t>(comm.rank().value)];
    if (c.in_region) std::copy(mine.begin(), mine.end(), static_cast<std::byte*>(region.data()));
    const Piece data{c.in_region ? region.data() : mine.data(), c.count, c.dtype, Device::cpu};
    comm.all_reduce(data, c.op, {.name = "law", .prescale = c.pre, .postscale = c.post, .algorithm = row});
    if (c.in_region) std::copy_n(static_cast<std::byte*>(region.data()), mine.size(), mine.begin());
    ASSERT_TRUE(mine == c.expected) << fmt::format("{} {} {} of {} on rank {}", row, name_of(c.dtype), name_of(c.op), c.count,
                                                   comm.rank().value);
  }
}

}  // namespace

TEST(HostLaws, RowsThatNestGiveTheBracketsBits) {
  for (const Split& split : splits()) {
    const auto few =
        worked_out({{Dtype::f32, Op::sum, 0, false}, {Dtype::f32, Op::sum, 1, false}, {Dtype::f32, Op::sum, 17, false}}, split.size());
    std::vector<Case> every;
    for (const Dtype dtype : every_dtype())
      for (const Op op : every_op())
        if (reducible(dtype, op)) every.push_back({dtype, op, 1000, true});
    every = worked_out(std::move(every), split.size());
    run(split, [&](Communicator& comm) {
      for (const AllReduce* row : rows_for(split, true)) {
        expect_all(comm, few, row->name);
        if (row->nests != nullptr) expect_all(comm, every, row->name);  // others have had all types over each kind of link
        if (::testing::Test::HasFatalFailure()) return;
      }
    });
  }
}

TEST(HostLaws, ChunksAndScalingDoNotChangeTheBits) {
  for (const Split& split : splits()) {
    if (!Hosts(split).nested() || split.size() == 1) continue;
    const auto cases = worked_out({{Dtype::f32, Op::sum, kTwoChunks / 4, false},
                                   {Dtype::f32, Op::sum, kTwoChunks / 4, true},
                                   {Dtype::bf16, Op::average, kTwoChunks / 2, false, 0.5, 3.0},
                                   {Dtype::bf16, Op::average, kTwoChunks / 2, true, 0.5, 3.0}},
                                  split.size());
    run(split, [&](Communicator& comm) {
      for (const AllReduce* row : rows_for(split, true))
        if (row->nests != nullptr) expect_all(comm, cases, row->name);
    });
  }
}

TEST(HostLaws, TheSelectorsChoiceGivesTheBracketsBits) {
  for (const Split& split : splits()) {
    std::vector<Case> cases;
    for (const std::size_t count : {0, 1, 13, 5000, 300'000}) {
      cases.push_back({Dtype::f32, Op::sum, count, true});
      cases.push_back({Dtype::f16, Op::average, count, false, 0.5, 3.0});
    }
    cases = worked_out(std::move(cases), split.size());
    run(split, [&](Communicator& comm) { expect_all(comm, cases, ""); });
  }
}

TEST(HostLaws, RowsThatAreNotCanonicalSumExactly) {
  for (const Split& split : splits()) {
    run(split, [&](Communicator& comm) {
      for (const AllReduce* row : rows_for(split, false)) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{5}, kTwoChunks / sizeof(int)}) {
          std::vector<int> values(count), expected(count);
          std::iota(values.begin(), values.end(), comm.rank().value);
          const int n = comm.size(), ranks = n * (n - 1) / 2;
          for (std::size_t i = 0; i < count; ++i) expected[i] = n * static_cast<int>(i) + ranks;
          comm.all_reduce(Piece{values.data(), count, Dtype::i32, Device::cpu}, Op::sum, {.algorithm = row->name});
          ASSERT_TRUE(values == expected) << row->name << " of " << count;
        }
      }
      comm.barrier();
    });
  }
}

// Random halves: their sums depend on the order of additions, so ranks and runs only agree when that is the same.
TEST(HostLaws, RowsThatAreNotCanonicalGiveAllRanksTheSameBitsEveryTime) {
  for (const Split& split : splits()) {
    run(split, [&](Communicator& comm) {
      for (const AllReduce* row : rows_for(split, false)) {
        auto once = random_input(Dtype::bf16, 50'003, 3, comm.rank().value);
        auto again = once;
        comm.all_reduce(piece_of(once, Dtype::bf16), Op::sum, {.algorithm = row->name});
        comm.all_reduce(piece_of(again, Dtype::bf16), Op::sum, {.algorithm = row->name});
        ASSERT_TRUE(once == again) << row->name << " does not repeat";
        comm.broadcast(piece_of(again, Dtype::bf16), Rank{0});
        ASSERT_TRUE(once == again) << row->name << ": ranks differ";
      }
      comm.barrier();
    });
  }
}

TEST(HostLaws, DeterminismLeavesRowsOutThatDoNotNest) {
  int seen = 0;
  for (const Split& split : splits()) {
    if (Hosts(split).nested()) continue;
    ++seen;
    run(split, [&](Communicator& comm) {
      std::vector<float> values(1000);
      const std::string text = comm.explain(piece(std::span(values)), Op::sum);
      EXPECT_THAT(text, ::testing::ContainsRegex("hierarchical [^\n]*left out")) << text;
      comm.barrier();
    });
  }
  EXPECT_GT(seen, 2);
}

TEST(HostLaws, GroupsOfOneHostShareMemoryAndGroupsAcrossHostsDoNot) {
  for (const Split& split : splits()) {
    run(split, [&](Communicator& comm) {
      const auto inside = comm.split(split[static_cast<std::size_t>(comm.rank().value)]);
      std::vector<float> values(100'000, 1.0F);
      inside->all_reduce(piece(std::span(values)), Op::sum);
      EXPECT_EQ(values[99'999], static_cast<float>(inside->size()));
      if (inside->size() > 1) inside->all_reduce(piece(std::span(values)), Op::max, {.algorithm = "staged"});
      const auto across = comm.split(inside->rank().value);
      values.assign(values.size(), 2.0F);
      across->all_reduce(piece(std::span(values)), Op::sum);
      EXPECT_EQ(values[0], 2.0F * static_cast<float>(across->size()));
      if (across->size() > 1) {  // not one of them is on the host of another
        EXPECT_THROW(across->all_reduce(piece(std::span(values)), Op::max, {.algorithm = "staged"}), Failure);
      }
    });
  }
}

// A rank that leaves ends the operation of all others, wherever they wait: at a link, or at the control block of their host.
TEST(HostLaws, ADepartedRankEndsAHierarchicalAllReduceOnAllOthers) {
  for (const Split& split : splits()) {
    if (split.size() < 2) continue;
    const int leaver = static_cast<int>(split.size()) - 1;
    run(split,
        [&](Communicator& comm) {
          std::vector<float> values(kTwoChunks / sizeof(float), 1.0F);
          const auto once = [&] { comm.all_reduce(piece(std::span(values)), Op::max, {.name = "grad", .algorithm = "hierarchical"}); };
          if (comm.rank().value == leaver) return once();
          try {  // the first too: a rank that is at the second already aborts those that are not
            for (int i = 0; i < 1000; ++i) once();
            ADD_FAILURE() << "nothing failed";
          } catch (const Failure& failure) {
            EXPECT_THAT(failure.what(), ::testing::HasSubstr(fmt::format("rank {}", leaver)));
          }
        },
        {.timeout = Seconds{20}});
  }
}

}  // namespace cohort::collective
