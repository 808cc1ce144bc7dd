// Laws of the other collectives: each equals a plain reference for 1-9 ranks, even and uneven, empty and odd sizes, all types, on shared
// memory and links.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cohort/collective/ranks.h"
#include "cohort/net/mixed.h"
#include "cohort/net/tcp/tcp.h"
#include "tests/laws/reference.h"

namespace cohort::collective {
namespace {

using Sizes = std::vector<std::size_t>;

struct Case {
  std::string transport;
  int ranks;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int n = 1; n <= 9; ++n) all.push_back({"shared", n});
  for (int n = 1; n <= 9; ++n) all.push_back({"tcp", n});
  for (int n = 1; n <= 9; ++n) all.push_back({"mixed", n});
  return all;
}

class CollectiveLaws : public ::testing::TestWithParam<Case> {
 protected:
  static void run(const std::function<void(Communicator&)>& body) {
    const MakeLinks tcp = [](int ranks) { return net::tcp_world(ranks); };
    const MakeLinks mixed = [](int ranks) {  // three ranks a host, and what is left
      std::vector<int> hosts;
      for (int r = 0; r < ranks; ++r) hosts.push_back(r / 3);
      return net::mixed_world(hosts);
    };
    run_ranks(GetParam().ranks, body, {}, GetParam().transport == "tcp" ? tcp : GetParam().transport == "mixed" ? mixed : nullptr);
  }
};
INSTANTIATE_TEST_SUITE_P(All, CollectiveLaws, ::testing::ValuesIn(cases()),
                         [](const auto& given) { return fmt::format("{}{}", given.param.transport, given.param.ranks); });

// Uneven counts, with zeros: rank r has (seed + r * r) % 5 times unit.
Sizes uneven(int ranks, std::size_t unit, int seed) {
  Sizes counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(static_cast<std::size_t>((seed + r * r) % 5) * unit);
  return counts;
}
std::size_t total(const Sizes& counts) { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); }
std::size_t before(const Sizes& counts, int rank) { return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0}); }

Buffer join_all(const std::vector<Buffer>& parts) {
  Buffer out;
  for (const auto& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}
std::vector<Buffer> inputs(Dtype dtype, const Sizes& counts, std::uint64_t seed) {
  std::vector<Buffer> all;
  for (std::size_t r = 0; r < counts.size(); ++r) all.push_back(random_input(dtype, counts[r], seed, static_cast<int>(r)));
  return all;
}
Sizes even(int ranks, std::size_t each) { return Sizes(static_cast<std::size_t>(ranks), each); }
std::size_t at(const Communicator& comm) { return static_cast<std::size_t>(comm.rank().value); }

void check_all_gather(Communicator& comm, Dtype dtype, const Sizes& counts, bool say_counts, bool in_region) {
  const auto all = inputs(dtype, counts, 11);
  Buffer mine = all[at(comm)];
  const Region region = in_region ? comm.allocate(mine.size()) : Region{};
  if (in_region && !mine.empty()) std::memcpy(region.data(), mine.data(), mine.size());
  const Piece in = in_region ? Piece{region.data(), counts[at(comm)], dtype, Device::cpu} : piece_of(mine, dtype);
  Buffer out(total(counts) * size_of(dtype));
  comm.all_gather(in, piece_of(out, dtype), {}, say_counts ? counts : Sizes{});
  ASSERT_EQ(out, join_all(all));
}

void check_reduce_scatter(Communicator& comm, Dtype dtype, Op op, const Sizes& counts, bool say_counts, bool in_region) {
  const auto all = inputs(dtype, even(comm.size(), total(counts)), 5);
  Buffer mine = all[at(comm)];
  const Region region = in_region ? comm.allocate(mine.size()) : Region{};
  if (in_region && !mine.empty()) std::memcpy(region.data(), mine.data(), mine.size());
  const Piece in = in_region ? Piece{region.data(), total(counts), dtype, Device::cpu} : piece_of(mine, dtype);
  Buffer out(counts[at(comm)] * size_of(dtype));
  comm.reduce_scatter(in, piece_of(out, dtype), op, {.prescale = 2.0}, say_counts ? counts : Sizes{});
  const Buffer whole = reference_reduce(dtype, op, all, 2.0);
  const auto first = static_cast<long>(before(counts, comm.rank().value) * size_of(dtype));
  ASSERT_EQ(out, Buffer(whole.begin() + first, whole.begin() + first + static_cast<long>(out.size())));
}

}  // namespace

TEST_P(CollectiveLaws, AllGatherJoinsThePartsInRankOrder) {
  run([](Communicator& comm) {
    for (const Dtype dtype : every_dtype())
      for (const std::size_t unit : {0, 1, 33}) {
        check_all_gather(comm, dtype, even(comm.size(), unit), false, false);
        check_all_gather(comm, dtype, uneven(comm.size(), unit, 3), true, false);
      }
    check_all_gather(comm, Dtype::f32, uneven(comm.size(), 70'001, 1), true, false);
    check_all_gather(comm, Dtype::f32, uneven(comm.size(), 70'001, 1), true, true);
  });
}

TEST_P(CollectiveLaws, ReduceScatterGivesEachRankItsBlockOfTheBracket) {
  run([](Communicator& comm) {
    for (const Dtype dtype : every_dtype())
      for (const Op op : every_op())
        for (const std::size_t unit : {0, 1, 33}) {
          if (!reducible(dtype, op)) continue;
          check_reduce_scatter(comm, dtype, op, even(comm.size(), unit), false, false);
          check_reduce_scatter(comm, dtype, op, uneven(comm.size(), unit, 2), true, false);
        }
    check_reduce_scatter(comm, Dtype::bf16, Op::sum, uneven(comm.size(), 90'001, 4), true, false);
    check_reduce_scatter(comm, Dtype::f32, Op::average, even(comm.size(), 50'001), false, true);
  });
}

TEST_P(CollectiveLaws, BroadcastGivesAllRanksTheRootsBits) {
  run([](Communicator& comm) {
    for (int root = 0; root < comm.size(); ++root)
      for (const std::size_t count : {0, 1, 1001, 200'001}) {
        auto mine = random_input(Dtype::f32, count, 9, comm.rank().value);
        comm.broadcast(piece_of(mine, Dtype::f32), Rank{root});
        ASSERT_EQ(mine, random_input(Dtype::f32, count, 9, root));
      }
    for (const Dtype dtype : every_dtype()) {
      auto mine = random_input(dtype, 77, 9, comm.rank().value);
      comm.broadcast(piece_of(mine, dtype), Rank{0});
      ASSERT_EQ(mine, random_input(dtype, 77, 9, 0));
    }
  });
}

TEST_P(CollectiveLaws, ReduceGivesTheRootTheBracketAndLeavesTheOthersAlone) {
  run([](Communicator& comm) {
    for (const Dtype dtype : every_dtype())
      for (const std::size_t count : {0, 1, 1001}) {
        const int root = static_cast<int>(count) % comm.size();
        const auto all = inputs(dtype, even(comm.size(), count), 21);
        Buffer mine = all[at(comm)];
        Buffer out(mine.size());
        const Buffer untouched = out;
        comm.reduce(piece_of(mine, dtype), piece_of(out, dtype), Op::max, Rank{root});
        ASSERT_EQ(mine, all[at(comm)]);
        ASSERT_EQ(out, comm.rank().value == root ? reference_reduce(dtype, Op::max, all) : untouched);
      }
    const auto all = inputs(Dtype::f32, even(comm.size(), 300'001), 2);
    Buffer mine = all[at(comm)];
    comm.reduce(piece_of(mine, Dtype::f32), piece_of(mine, Dtype::f32), Op::average, Rank{0});  // in place
    if (comm.rank().value == 0) {
      ASSERT_EQ(mine, reference_reduce(Dtype::f32, Op::average, all));
    }
  });
}

TEST_P(CollectiveLaws, GatherThenScatterIsTheIdentity) {
  run([](Communicator& comm) {
    for (const Dtype dtype : every_dtype())
      for (const std::size_t unit : {0, 1, 33, 9000}) {
        const auto counts = uneven(comm.size(), unit, 1);
        const int root = comm.size() - 1;
        const auto all = inputs(dtype, counts, 31);
        Buffer mine = all[at(comm)];
        Buffer whole(comm.rank().value == root ? total(counts) * size_of(dtype) : 0);
        comm.gather(piece_of(mine, dtype), piece_of(whole, dtype), Rank{root}, {}, counts);
        if (comm.rank().value == root) {
          ASSERT_EQ(whole, join_all(all));
        }
        Buffer back(mine.size());
        comm.scatter(piece_of(whole, dtype), piece_of(back, dtype), Rank{root}, {}, counts);
        ASSERT_EQ(back, mine);
      }
  });
}

TEST_P(CollectiveLaws, AllToAllTransposesTheBlocks) {
  run([](Communicator& comm) {
    const int n = comm.size();
    for (const Dtype dtype : every_dtype())
      for (const std::size_t unit : {0, 1, 40, 20'000}) {
        if (unit == 20'000 && dtype != Dtype::f32) continue;
        std::vector<Sizes> rows;  // rows[from][to]
        for (int from = 0; from < n; ++from) rows.push_back(uneven(n, unit, from));
        std::vector<Buffer> all;
        for (int from = 0; from < n; ++from) all.push_back(random_input(dtype, total(rows[static_cast<std::size_t>(from)]), 41, from));
        Sizes expected;
        Buffer want;
        for (int from = 0; from < n; ++from) {
          const auto& row = rows[static_cast<std::size_t>(from)];
          expected.push_back(row[at(comm)]);
          const auto first =
              all[static_cast<std::size_t>(from)].begin() + static_cast<long>(before(row, comm.rank().value) * size_of(dtype));
          want.insert(want.end(), first, first + static_cast<long>(expected.back() * size_of(dtype)));
        }
        Buffer out(total(expected) * size_of(dtype));
        comm.all_to_all(piece_of(all[at(comm)], dtype), piece_of(out, dtype), {}, rows[at(comm)], expected);
        ASSERT_EQ(out, want);
      }
    std::vector<std::int32_t> in(static_cast<std::size_t>(n), comm.rank().value);  // even blocks need no counts
    std::vector<std::int32_t> out(static_cast<std::size_t>(n));
    comm.all_to_all(piece(std::span(in)), piece(std::span(out)));
    for (int r = 0; r < n; ++r) ASSERT_EQ(out[static_cast<std::size_t>(r)], r);
  });
}

TEST_P(CollectiveLaws, SendAndReceiveMatchByTagAndNextTakesFromAnyRank) {
  run([](Communicator& comm) {
    const int n = comm.size();
    std::vector<double> out(3001, comm.rank().value);
    std::vector<double> in(3001);
    std::jthread sender([&] { comm.send(piece(std::span(out)), Rank{(comm.rank().value + 1) % n}, 7); });
    comm.recv(piece(std::span(in)), Rank{(comm.rank().value + n - 1) % n}, 7);
    sender.join();
    ASSERT_EQ(in[3000], (comm.rank().value + n - 1) % n);
    if (comm.rank().value != 0) {
      comm.send(piece(std::span(out)), Rank{0}, 20 + static_cast<std::uint32_t>(comm.rank().value));
    } else {
      std::vector<bool> seen(static_cast<std::size_t>(n), false);
      for (int i = 1; i < n; ++i) {
        const Message message = comm.next(20, 40);
        ASSERT_EQ(message.tag.number, 20u + static_cast<unsigned>(message.from.value));
        ASSERT_EQ(message.bytes.size(), 3001 * sizeof(double));
        ASSERT_FALSE(seen[static_cast<std::size_t>(message.from.value)]);
        seen[static_cast<std::size_t>(message.from.value)] = true;
      }
    }
    comm.barrier();
  });
}

TEST_P(CollectiveLaws, SplitsAndSubsetsAreCommunicatorsOfTheirOwn) {
  run([](Communicator& comm) {
    const int me = comm.rank().value;
    const auto half = comm.split(me % 2, -me);  // keys turn the order round
    int same = 0;
    for (int r = 0; r < comm.size(); ++r) same += r % 2 == me % 2;
    ASSERT_EQ(half->size(), same);
    std::vector<std::int64_t> value{me};
    half->all_reduce(piece(std::span(value)), Op::sum);
    std::int64_t want = 0;
    for (int r = me % 2; r < comm.size(); r += 2) want += r;
    ASSERT_EQ(value[0], want);
    std::vector<std::int64_t> order(static_cast<std::size_t>(same));
    value[0] = me;
    half->all_gather(piece(std::span(value)), piece(std::span(order)));
    ASSERT_TRUE(std::is_sorted(order.rbegin(), order.rend()));

    ASSERT_EQ(comm.split(me == 0 ? 0 : -1) != nullptr, me == 0);
    const std::vector<Rank> ends{Rank{comm.size() - 1}, Rank{0}};
    const auto set = comm.size() > 1 ? comm.subset(ends) : nullptr;
    ASSERT_EQ(set != nullptr, comm.size() > 1 && (me == 0 || me == comm.size() - 1));
    if (set) {
      value[0] = me;
      set->broadcast(piece(std::span(value)), Rank{0});
      ASSERT_EQ(value[0], comm.size() - 1);  // the list's order is the set's order
    }
    comm.barrier();
  });
}

}  // namespace cohort::collective
