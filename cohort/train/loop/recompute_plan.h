// Which blocks of a run's model are recomputed (the setting `recompute`), and the block wrapper that does it. until_fits measures the
// activations of one forward of a batch, block by block; the largest over the ranks counts, so that all ranks choose the same.
// Owner: values. Threads: one; every rank calls it. Failure: Kind::usage, on all ranks.
#pragma once
#include <string>

#include "cohort/collective/communicator.h"
#include "cohort/nn/blocks.h"
#include "cohort/train/config.h"

namespace cohort::train {

struct RecomputePlan {
  nn::BlockWrapper wrapper;  // empty: no block is recomputed
  std::string why;           // "recomputes 2 of 5 blocks (h.0, h.1)", for people; empty: it was not asked for
};

RecomputePlan plan_recompute(collective::Communicator& comm, const TrainConfig& config, const nn::Model& model);

}  // namespace cohort::train
