#include "cohort/collective/all_reduce/layers_claims.h"

namespace cohort::collective {

TEST(Hierarchical, SumsExactlyOnUnevenHosts) {
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0, 0, 1}, {0, 1, 1}, {0, 1, 0, 2, 1}})
    expect_exact_sums(hosts, 700'003, "hierarchical");
}

// More than are under way at once, so that every place in memory and every lane is used again.
TEST(Hierarchical, SumsExactlyInManyChunks) { expect_exact_sums({0, 0, 1, 1}, 5'500'003, "hierarchical"); }

}  // namespace cohort::collective
