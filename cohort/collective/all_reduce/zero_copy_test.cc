#include <gtest/gtest.h>

#include "cohort/collective/ranks.h"

namespace cohort::collective {

TEST(ZeroCopy, ReducesInPlaceAcrossManyBlocks) {
  run_ranks(3, [](Communicator& comm) {
    const std::size_t count = 1'000'003;
    const Region region = comm.allocate(count * sizeof(float));
    const auto values = region.as<float>();
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 97) + static_cast<float>(comm.rank().value);
    comm.all_reduce(piece(values), Op::sum, {.algorithm = "zero_copy"});
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], 3.0F * static_cast<float>(i % 97) + 3.0F) << i;
  });
}

TEST(ZeroCopy, RefusesBuffersFromElsewhereOnAllRanksAndLeavesTheCommunicatorUsable) {
  run_ranks(2, [](Communicator& comm) {
    const Region region = comm.allocate(400'000);
    std::vector<float> outside(100'000, 1.0F);
    const auto data = comm.rank().value == 0 ? piece(region.as<float>()) : piece(std::span(outside));
    try {
      comm.all_reduce(data, Op::sum, {.algorithm = "zero_copy"});
      FAIL() << "a buffer outside allocate() was taken";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.kind(), Kind::usage);
    }
    comm.all_reduce(data, Op::sum);  // one rank in place, one not: staged for both
    EXPECT_EQ(static_cast<float*>(data.data)[99'999], 1.0F);
  });
}

TEST(ZeroCopy, AFreedRegionIsUnmappedByThePeers) {
  run_ranks(2, [](Communicator& comm) {
    for (int i = 0; i < 20; ++i) {
      const Region region = comm.allocate(1'000'000);
      region.as<std::int32_t>()[7] = i;
      comm.all_reduce(piece(region.as<std::int32_t>()), Op::sum, {.algorithm = "zero_copy"});
      ASSERT_EQ(region.as<std::int32_t>()[7], 2 * i);
    }
  });
}

}  // namespace cohort::collective
