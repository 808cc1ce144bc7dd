#include "cohort/collective/all_reduce/hierarchy_claims.h"

namespace cohort::collective {

TEST(Hierarchical, SumsExactlyOnUnevenHosts) {
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0, 0, 1}, {0, 1, 1}, {0, 1, 0, 2, 1}})
    expect_exact_sums(hosts, 700'003, "hierarchical");
}

// More than are in flight at once, so that every buffer and every flow is used again.
TEST(Hierarchical, SumsExactlyInManyChunks) { expect_exact_sums({0, 0, 1, 1}, 5'500'003, "hierarchical"); }

}  // namespace cohort::collective
