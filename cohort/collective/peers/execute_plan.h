// The executor that runs a plan (plans/plan.h) over links: it sends, receives and reduces.
// Threads: the one that runs the collective. Failure: as Peers.
#pragma once
#include "cohort/collective/kernels/kernels.h"
#include "cohort/collective/peers/peers.h"
#include "cohort/collective/plans/plan.h"

namespace cohort::collective {

// Reduces one received segment into ours; no scaling.
void reduce_into(Piece mine, void* theirs, const Reduction& how, Arrival arrival);

// Messages are cut into segments so that reducing one overlaps with receiving the next. Scaling as in kernels.h, before and after.
void execute_plan(Peers& peers, Piece data, const Reduction& how, const Plan& plan);

}  // namespace cohort::collective
