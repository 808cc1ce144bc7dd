// Laws of all-reduce over links when messages are large: lent by their senders, cut into more segments than are posted ahead, of a size
// that divides by nothing; and when ranks are not at the same place at the same time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "cohort/base/file.h"
#include "cohort/collective/operations/all_reduce.h"
#include "cohort/collective/ranks.h"
#include "cohort/net/tcp/tcp.h"
#include "tests/laws/reference.h"

namespace cohort::collective {
namespace {

std::vector<std::unique_ptr<net::PeerLinks>> near_by(int ranks) { return net::tcp_world(ranks); }
std::vector<std::unique_ptr<net::PeerLinks>> far_away(int ranks) { return net::tcp_world(ranks, {}, "auto", true); }

// Four sockets a link, short ones where the kernel has a congestion control that paces.
std::vector<std::unique_ptr<net::PeerLinks>> side_by_side(int ranks) {
  static const bool bbr = read_file("/proc/sys/net/ipv4/tcp_available_congestion_control").find("bbr") != std::string::npos;
  return net::tcp_world(ranks, {}, bbr ? "bbr" : "auto", false, false, 4);
}
std::vector<std::unique_ptr<net::PeerLinks>> side_by_side_far_away(int ranks) { return net::tcp_world(ranks, {}, "auto", true, false, 3); }

// Rows that are not canonical get integers, whose sums know no order.
struct Case {
  Case(int ranks, Dtype type, std::size_t count) : dtype(type) {
    for (int r = 0; r < ranks; ++r) inputs.push_back(random_input(dtype, count, 11, r));
    want = reference_reduce(dtype, Op::sum, inputs);
  }
  void check(Communicator& comm, std::string_view row) const {
    Buffer mine = inputs[static_cast<std::size_t>(comm.rank().value)];
    comm.all_reduce(piece_of(mine, dtype), Op::sum, {.algorithm = row});
    ASSERT_TRUE(mine == want) << fmt::format("{} of {} bytes on rank {} of {}", row, mine.size(), comm.rank().value, comm.size());
  }
  Dtype dtype;
  std::vector<Buffer> inputs;
  Buffer want;
};

void every_row(int ranks, std::size_t count, const MakeLinks& make) {
  const Case reals(ranks, Dtype::f32, count), integers(ranks, Dtype::i32, count);
  run_ranks(
      ranks,
      [&](Communicator& comm) {
        for (const AllReduce* row : all_reduce_rows()) {
          if (row->name == "zero_copy" || row->name == "staged") continue;
          (row->canonical ? reals : integers).check(comm, row->name);
          if (::testing::Test::HasFatalFailure()) return;
        }
      },
      {}, make);
}

class SegmentLaws : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SegmentLaws, ::testing::Range(2, 10));

TEST_P(SegmentLaws, AMessageOfManySegmentsGivesTheReferencesBits) { every_row(GetParam(), 1'310'721, near_by); }  // 5 MiB and 4 bytes
TEST_P(SegmentLaws, AMessageJustLargeEnoughToBeLentDoesToo) { every_row(GetParam(), 32'768 * 9 + 1, near_by); }
TEST_P(SegmentLaws, AsItDoesWhereNothingIsLent) { every_row(GetParam(), 327'683, far_away); }

TEST(Segments, GoOverSeveralSocketsWithTheSameBits) {
  for (const int ranks : {2, 3, 5}) every_row(ranks, 1'310'721, side_by_side);
  every_row(4, 327'683, side_by_side_far_away);
}

// From 16 MiB on segments are longer.
TEST(Segments, AreAsLongOnAllRanks) {
  for (const std::size_t count : {4'194'303, 4'194'304, 4'194'305}) every_row(2, count, near_by);
  every_row(4, 4'194'305, side_by_side);
}

TEST(Segments, RingsOfManySegmentsGiveTheSum) { every_row(3, 4 * 1'310'721, near_by); }

// One rank comes late to every operation, each in its turn: when the others have entered it, and for one of them when the others have
// stopped holding back what has no posted receive.
TEST(Segments, RanksThatComeLateChangeNothing) {
  constexpr int kRanks = 4;
  const Case reals(kRanks, Dtype::f32, 700'001), integers(kRanks, Dtype::i32, 700'001);
  const auto rows = all_reduce_rows();
  std::vector<std::atomic<int>> entered(rows.size() * kRanks);
  run_ranks(
      kRanks,
      [&](Communicator& comm) {
        for (std::size_t i = 0; i < entered.size(); ++i) {
          const AllReduce* const row = rows[i / kRanks];
          if (row->name == "zero_copy" || row->name == "staged") continue;
          if (comm.rank().value == static_cast<int>(i % kRanks)) {
            for (const Deadline limit = Deadline::in(30s); entered[i].load() < kRanks - 1 && !limit.passed();) std::this_thread::yield();
            std::promise<void> never;
            never.get_future().wait_for(i == 1 ? 400ms : 2ms);  // time for the others to send all they can
          } else {
            entered[i].fetch_add(1);
          }
          (row->canonical ? reals : integers).check(comm, row->name);
          if (::testing::Test::HasFatalFailure()) return;
        }
      },
      {}, near_by);
}

}  // namespace
}  // namespace cohort::collective
