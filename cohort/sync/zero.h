// ZeRO (Rajbhandari et al. 2020): every rank updates only the elements it owns. Gradients: reduce-scatter, each rank ends with its own
// piece of the reduced gradient. Parameters: all-gather. What is held beside the own piece follows the stage (bucket.h). A step moves 2 Psi
// (N - 1) / N elements over each rank's link, as an all-reduce does. Law: the same bits as all_reduce, since both reduce in the canonical
// order and update rules are element-wise. Owner, threads, failure: as every Strategy (strategy.h).
#pragma once
#include "cohort/base/spec.h"
#include "cohort/sync/schemas.h"
#include "cohort/sync/strategy.h"

namespace cohort::sync {

std::unique_ptr<Strategy> make_zero(const SpecValues& values);

}  // namespace cohort::sync
