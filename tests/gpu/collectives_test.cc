// The native backend on memory of a GPU: the processor's results, for ranks as threads that share one.
#include "cohort/base/failure_of.h"
#include "cohort/collective/ranks.h"
#include "tests/gpu/testing.h"

namespace cohort::collective {
namespace {

std::vector<float> of_rank(int rank, std::size_t count = 5003) { return noise<float>(count, 20 + static_cast<unsigned>(rank)); }

TEST(GpuCollectives, AllReduceHasTheProcessorsBits) {
  for (const int n : {1, 2, 3})
    run_ranks(n, [](Communicator& comm) {
      auto here = of_rank(comm.rank().value), more = of_rank(comm.rank().value, 17);
      const OnGpu<float> there(here), there_more(more);
      comm.all_reduce(piece(std::span(here)), Op::average);
      comm.all_reduce(piece(std::span(more)), Op::sum);
      comm.all_reduce(there.piece(), Op::average);
      comm.all_reduce(there_more.piece(), Op::sum);
      EXPECT_TRUE(same_bits(there.values(), here));
      EXPECT_TRUE(same_bits(there_more.values(), more));
      const std::vector<Piece> both{there.piece(), there_more.piece()};
      comm.all_reduce(both, Op::max);
      EXPECT_TRUE(same_bits(there.values(), here)) << "all ranks have the same, which is the largest";
    });
}

TEST(GpuCollectives, UnevenReduceScatterAndAllGatherHaveTheProcessorsBits) {
  for (const int n : {1, 2, 3})
    run_ranks(n, [n](Communicator& comm) {
      std::vector<std::size_t> counts;
      for (int r = 0; r < n; ++r) counts.push_back(static_cast<std::size_t>(100 * r + 7));
      std::size_t total = 0;
      for (const auto c : counts) total += c;
      auto in = of_rank(comm.rank().value, total);
      std::vector<float> out(counts[static_cast<std::size_t>(comm.rank().value)]), all(total);
      const OnGpu<float> gpu_in(in), gpu_out(out), gpu_all(all);
      comm.reduce_scatter(piece(std::span(in)), piece(std::span(out)), Op::sum, {}, counts);
      comm.reduce_scatter(gpu_in.piece(), gpu_out.piece(), Op::sum, {}, counts);
      EXPECT_TRUE(same_bits(gpu_out.values(), out));
      comm.all_gather(piece(std::span(out)), piece(std::span(all)), {}, counts);
      comm.all_gather(gpu_out.piece(), gpu_all.piece(), {}, counts);
      EXPECT_TRUE(same_bits(gpu_all.values(), all));
    });
}

TEST(GpuCollectives, BroadcastAndReduceReachTheirRanks) {
  run_ranks(3, [](Communicator& comm) {
    const OnGpu<float> data(of_rank(comm.rank().value));
    comm.broadcast(data.piece(), Rank{1});
    EXPECT_TRUE(same_bits(data.values(), of_rank(1)));
    auto mine = of_rank(comm.rank().value), sum = mine;
    const OnGpu<float> in(mine), out(sum);
    comm.reduce(piece(std::span(mine)), piece(std::span(sum)), Op::sum, Rank{2});
    comm.reduce(in.piece(), out.piece(), Op::sum, Rank{2});
    if (comm.rank() == Rank{2}) EXPECT_TRUE(same_bits(out.values(), sum));
  });
}

TEST(GpuCollectives, ARankOnTheProcessorTakesPart) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> here(64, static_cast<float>(comm.rank().value + 1));
    const OnGpu<float> there(here);
    comm.all_reduce(comm.rank() == Rank{0} ? there.piece() : piece(std::span(here)), Op::sum);
    EXPECT_THAT(comm.rank() == Rank{0} ? there.values() : here, testing::Each(3.0F));
  });
}

TEST(GpuCollectives, WhatDoesNotTravelIsRefusedWithWhatToDo) {
  run_ranks(1, [](Communicator& comm) {
    const OnGpu<float> there(std::vector<float>(4));
    EXPECT_THAT(failure_of([&] { comm.all_to_all(there.piece(), there.piece()); }).what, testing::HasSubstr("copy the data to the host"));
  });
}

}  // namespace
}  // namespace cohort::collective
