#include "cohort/observe/clocks.h"

#include <gtest/gtest.h>

#include "cohort/collective/ranks.h"

namespace cohort::observe {

// Ranks 0 and 2 share a kernel, rank 1's clock runs a second late, rank 3's an hour ahead.
constexpr std::int64_t kAhead[] = {0, -1'000'000'000, 0, 3'600'000'000'000};

TEST(Clocks, OffHostsAreFoundWithinTheirOwnUncertainty) {
  collective::run_ranks(4, [](collective::Communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank().value);
    const auto real = own_clock();
    const ClockSource clock{[&] { return real.now_ns() + kAhead[me]; }, me % 2 == 0 ? real.kernel : "host " + std::to_string(me)};
    const auto found = clock_offset_to_first(comm, clock);
    if (me % 2 == 0) {
      EXPECT_EQ(found.offset_ns, 0);
      EXPECT_EQ(found.uncertainty_ns, 0) << "one clock needs no measuring";
    } else {
      EXPECT_LE(std::abs(found.offset_ns + kAhead[me]), found.uncertainty_ns + 1);
      EXPECT_LT(found.uncertainty_ns, 100'000'000);
    }
    comm.barrier();  // who leaves ends the others' calls
  });
}

TEST(Clocks, OfOneKernelAreOne) {
  collective::run_ranks(3, [](collective::Communicator& comm) { EXPECT_EQ(clock_offset_to_first(comm).offset_ns, 0); });
}

}  // namespace cohort::observe
