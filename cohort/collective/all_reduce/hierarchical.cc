// Hierarchical: added up inside each host in shared memory, halved and doubled between hosts (layers.h). Of the bytes only 2N(h-1)/h a host
// cross the network, driven by all ranks of a host. Canonical where sums inside hosts are branches of the bracket (Hosts::nested).
#include "cohort/collective/all_reduce.h"
#include "cohort/collective/layers.h"
#include "cohort/collective/plans.h"

namespace cohort::collective {
namespace {

std::optional<Seconds> cost(const Shape& shape, const Calibration& k) {
  if (!shape.mixed()) return std::nullopt;
  return layers_cost(shape, k, 2.0 * log2_ceil(shape.hosts));
}

void run(Peers& peers, Piece data, const Reduction& how, Opening) { reduce_in_layers(peers, data, how, halving_doubling_plan); }

bool nests(const Shape& shape) { return shape.nested; }

}  // namespace

extern const AllReduce row_hierarchical{.name = "hierarchical",
                                        .about = "shared memory inside hosts, halves traded between them",
                                        .canonical = true,
                                        .cost = cost,
                                        .run = run,
                                        .needs = "several hosts with several ranks",
                                        .nests = nests};

}  // namespace cohort::collective
