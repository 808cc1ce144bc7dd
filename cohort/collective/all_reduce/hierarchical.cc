// Hierarchical: added up inside each host in shared memory, halving-doubling between hosts (hierarchy.h). Only 2N(h-1)/h bytes of a host
// cross the network, driven by all ranks of a host. Canonical where sums inside hosts are branches of the bracket (Hosts::nested).
#include "cohort/collective/operations/all_reduce.h"
#include "cohort/collective/operations/hierarchy.h"
#include "cohort/collective/plans/all_reduce_plans.h"

namespace cohort::collective {
namespace {

std::optional<Seconds> cost(const Shape& shape, const Calibration& k) {
  if (!shape.mixed()) return std::nullopt;
  return hierarchy_cost(shape, k, 2.0 * log2_ceil(shape.hosts));
}

void run(Peers& peers, Piece data, const Reduction& how, StartMode) { reduce_hierarchically(peers, data, how, halving_doubling_plan); }

bool nests(const Shape& shape) { return shape.nested; }

}  // namespace

extern const AllReduce row_hierarchical{.name = "hierarchical",
                                        .about = "shared memory inside hosts, halving-doubling between them",
                                        .canonical = true,
                                        .cost = cost,
                                        .run = run,
                                        .needs = "several hosts with several ranks",
                                        .nests = nests};

}  // namespace cohort::collective
