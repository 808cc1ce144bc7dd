// Adasum: a sum of gradients that does not count what they have in common twice. For a pair
//
//   a (+) b = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b         (a factor is 1 where its |x|^2 is below sqrt(DBL_MIN))
//
// so orthogonal gradients are added, equal ones averaged. Many ranks are combined pair by pair, neighbours first: ((0 1)(2 3))(4 5) ..,
// a rank without a partner waits for the next round. Any number of ranks; the result does not change with a common scale of all inputs.
// Maleki et al. 2020 (arXiv 2006.02924).
//
// How: every rank gets its slice of all inputs (one all_to_all), then each round is one small all_reduce of the pairs' three products,
// in double, and a combination of slices; one all_gather at the end. It moves as much as a ring all-reduce. f16 and bf16 are combined as
// f32. Threads and failure: as the communicator's collectives. Needs as much memory again as the data (twice that for 16-bit types).
#pragma once
#include "cohort/collective/communicator.h"

namespace cohort::collective {

// In place on every rank; real types on the CPU only, else Kind::usage. The same bits on every rank.
void adasum(Communicator& comm, Piece data, const Call& call = {});

}  // namespace cohort::collective
