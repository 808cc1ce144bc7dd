// Ring: n - 1 steps of reduce-scatter, n - 1 of all-gather, always to the right. Bandwidth-optimal, n-fold latency.
#include "cohort/collective/operations/all_reduce.h"
#include "cohort/collective/peers/execute_plan.h"
#include "cohort/collective/plans/all_reduce_plans.h"

namespace cohort::collective {

Plan ring_plan(int rank, int ranks, std::size_t count) {
  Plan plan;
  const auto part = [&](int index) { return part_of(count, ranks, ((index % ranks) + ranks) % ranks); };
  const int right = (rank + 1) % ranks;
  const int left = (rank + ranks - 1) % ranks;
  for (int s = 0; s < ranks - 1; ++s) plan.push_back({right, part(rank - s), left, part(rank - s - 1), Arrival::theirs_left});
  for (int s = 0; s < ranks - 1; ++s) plan.push_back({right, part(rank + 1 - s), left, part(rank - s), Arrival::copy});
  return plan;
}

namespace {

std::optional<Seconds> cost(const Shape& shape, const Calibration& k) {
  const double n = shape.ranks;
  const double moved = static_cast<double>(shape.bytes) * (n - 1) / n;
  const Seconds sums{crowding(shape) * moved / k.reduce_rate};
  if (shape.mixed()) return link_cost(shape, k, {0, 0, 2 * (n - 1), 2 * moved}) + sums;  // every round waits for those between hosts
  return link_cost(shape, k, {2 * (n - 1), 2 * moved}) + sums;
}

void run(Peers& peers, Piece data, const Reduction& how, StartMode) {
  execute_plan(peers, data, how, ring_plan(peers.rank(), peers.size(), data.count));
}

}  // namespace

extern const AllReduce row_ring{
    .name = "ring", .about = "links, each rank sends to its right neighbour; fewest bytes", .canonical = false, .cost = cost, .run = run};

}  // namespace cohort::collective
