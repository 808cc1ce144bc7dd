#include "cohort/bench/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cohort/bench/options.h"

namespace cohort::bench {
namespace {

TEST(Measure, EveryCollectivesOutputIsWhatItsInputsGive) {
  constexpr int kRanks = 3;
  constexpr std::size_t kWhole = 33;
  for (const char* collective : kBenchCollectives) {
    for (int rank = 0; rank < kRanks; ++rank) {
      measure::Shape s{collective, "sum", rank, kRanks, kWhole};
      if (s.collective == "barrier") continue;
      std::vector<int> out(s.out_count());
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int>(measure::output_value(s, i));
      const auto right = measure::check_output(s, out.data());
      EXPECT_EQ(right.wrong, 0u) << collective << " rank " << rank;
      if (out.empty()) continue;
      out.back() += 1;
      const auto wrong = measure::check_output(s, out.data());
      EXPECT_EQ(wrong.wrong, 1u) << collective;
      EXPECT_EQ(wrong.first, out.size() - 1) << collective;
      EXPECT_NE(wrong.checksum, right.checksum) << collective;
    }
  }
}

TEST(Measure, SumsAreTakenOverRanksByHand) {
  const measure::Shape s{"all_reduce", "sum", 0, 3, 10};
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_EQ(measure::reduced_value(s, i), static_cast<std::int64_t>(i % 7 + (i + 3) % 7 + (i + 6) % 7));
  const measure::Shape gathered{"all_gather", "sum", 1, 2, 6};
  EXPECT_EQ(measure::output_value(gathered, 4), (1 + 3) % 7);  // element 1 of rank 1
}

TEST(Measure, SizesRoundUpToEvenBlocks) {
  EXPECT_EQ(measure::whole_elements("all_reduce", 10, 4, 4), 2u);
  EXPECT_EQ(measure::whole_elements("all_reduce", 1, 4, 4), 1u);
  EXPECT_EQ(measure::whole_elements("all_gather", 4, 4, 4), 4u);
  EXPECT_EQ(measure::whole_elements("reduce_scatter", 36, 4, 4), 12u);
  EXPECT_EQ(measure::whole_elements("barrier", 4096, 4, 4), 0u);
}

TEST(Measure, ASampleIsABatchAndEveryRankAgreesOnTheCount) {
  int runs = 0, barriers = 0;
  const auto s = measure::time_operation(
      {0.001, 7}, [&] { ++runs; }, [&] { ++barriers; }, [](double* v, std::size_t n) { std::fill(v, v + n, 1e-5); });
  EXPECT_EQ(s.batch, 100);  // a millisecond of operations that take 10 us
  EXPECT_EQ(s.repeats, 7);
  EXPECT_EQ(runs, 1 + 1 + 4 + 16 + 64 + 256 + 700);
  EXPECT_EQ(barriers, 5 + 7);
}

}  // namespace
}  // namespace cohort::bench
