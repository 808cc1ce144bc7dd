// Tree: reduce up a binomial tree to rank 0 in the canonical bracket, then broadcast down the same tree.
#include "cohort/collective/operations/all_reduce.h"
#include "cohort/collective/peers/execute_plan.h"
#include "cohort/collective/plans/all_reduce_plans.h"

namespace cohort::collective {

Plan tree_plan(int rank, int ranks, std::size_t count) {
  Plan plan;
  const Range all{0, count};
  int width = 1;
  for (; width < ranks && rank % (2 * width) == 0; width *= 2)  // children: their block lies to the right of what we have
    if (rank + width < ranks) plan.push_back({-1, {}, rank + width, all, Arrival::theirs_right});
  if (rank != 0) {
    const int parent = rank - width;
    plan.push_back({parent, all, -1, {}, Arrival::copy});
    plan.push_back({-1, {}, parent, all, Arrival::copy});
  }
  for (width /= 2; width >= 1; width /= 2)
    if (rank + width < ranks) plan.push_back({rank + width, all, -1, {}, Arrival::copy});
  return plan;
}

namespace {

std::optional<Seconds> cost(const Shape& shape, const Calibration& k) {
  const double bytes = static_cast<double>(shape.bytes);
  const double rounds = log2_ceil(shape.ranks), far = log2_ceil(shape.hosts);
  const Seconds sums{crowding(shape) * rounds * bytes / k.reduce_rate};
  if (!shape.mixed()) return link_cost(shape, k, {2 * rounds, 2 * rounds * bytes}) + sums;
  return link_cost(shape, k, {2 * (rounds - far), 2 * (rounds - far) * bytes, 2 * far, 2 * far * bytes}) + sums;
}

void run(Peers& peers, Piece data, const Reduction& how, StartMode) {
  execute_plan(peers, data, how, tree_plan(peers.rank(), peers.size(), data.count));
}

}  // namespace

extern const AllReduce row_tree{
    .name = "tree", .about = "links, up a binomial tree and down again; fewest messages", .canonical = true, .cost = cost, .run = run};

}  // namespace cohort::collective
