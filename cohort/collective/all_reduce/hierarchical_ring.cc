// Hierarchical with a ring between hosts: as hierarchical.cc, with one neighbour on each side, for networks that are rings or trees
// themselves. Not canonical: the order of additions depends on the part.
#include "cohort/collective/operations/all_reduce.h"
#include "cohort/collective/operations/hierarchy.h"
#include "cohort/collective/plans/all_reduce_plans.h"

namespace cohort::collective {
namespace {

std::optional<Seconds> cost(const Shape& shape, const Calibration& k) {
  if (!shape.mixed()) return std::nullopt;
  return hierarchy_cost(shape, k, 2.0 * (shape.hosts - 1));
}

void run(Peers& peers, Piece data, const Reduction& how, StartMode) { reduce_hierarchically(peers, data, how, ring_plan); }

}  // namespace

extern const AllReduce row_hierarchical_ring{.name = "hierarchical_ring",
                                             .about = "shared memory inside hosts, a ring between them",
                                             .canonical = false,
                                             .cost = cost,
                                             .run = run,
                                             .needs = "several hosts with several ranks"};

}  // namespace cohort::collective
