// How the staged all-reduce lays chunks out on the stages: shared by the row and by the opening of the operation, which stages the
// first round before it posts, so that a small all-reduce costs one synchronisation.
#pragma once
#include "cohort/collective/kernels/kernels.h"
#include "cohort/collective/peers/peers.h"

namespace cohort::collective {

// Up to here every rank sums everything: one synchronisation and n reads each beat two synchronisations.
inline constexpr std::size_t kEagerBytes = 8_KiB;

void stage_first(Peers& peers, Piece data);                      // the first round of `data`, on our stage (or line) of the next step
void sum_eager(Peers& peers, Piece data, const Reduction& how);  // after it was opened

}  // namespace cohort::collective
