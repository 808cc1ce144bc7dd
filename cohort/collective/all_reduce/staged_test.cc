#include "cohort/collective/operations/staged.h"

#include <gtest/gtest.h>

#include "cohort/collective/ranks.h"

namespace cohort::collective {

TEST(Staged, SumsAroundTheBordersOfLinesEagerBuffersAndChunks) {
  for (const int ranks : {2, 3, 5})
    run_ranks(ranks, [ranks](Communicator& comm) {
      for (const std::size_t bytes :
           {std::size_t{4}, std::size_t{48}, std::size_t{52}, kEagerBytes, kEagerBytes + 4, 256_KiB, 256_KiB + 4, 1_MiB - 4})
        for (int repeat = 0; repeat < 3; ++repeat) {  // stages come round again
          std::vector<float> values(bytes / 4);
          for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(comm.rank().value * 10 + static_cast<int>(i % 7));
          comm.all_reduce(piece(std::span(values)), Op::sum);
          for (std::size_t i = 0; i < values.size(); ++i)
            ASSERT_EQ(values[i], static_cast<float>(ranks * (ranks - 1) / 2 * 10 + ranks * static_cast<int>(i % 7)))
                << bytes << " at " << i;
        }
    });
}

}  // namespace cohort::collective
