// Which blocks of a run's model are recomputed (the setting `recompute`), and the seam that does it. until_fits measures what one forward
// of a batch keeps, block by block; the rank with the most counts, so that all ranks choose alike.
// Owner: values. Threads: one; every rank calls it. Failure: Kind::usage, on all ranks.
#pragma once
#include <string>

#include "cohort/collective/communicator.h"
#include "cohort/nn/blocks.h"
#include "cohort/train/config.h"

namespace cohort {

struct Recomputing {
  nn::Around around;  // empty: no block is recomputed
  std::string why;    // "recomputes 2 of 5 blocks (h.0, h.1)", for people; empty: it was not asked
};

Recomputing plan_recomputing(collective::Communicator& comm, const TrainConfig& config, const nn::Model& model);

}  // namespace cohort
