// Checks that all ranks of a run have the same data. Every host reads its own copy: one that is older, cut short or in another order would
// be trained on without a word. Threads: the communicator's. Failure: Kind::usage naming the set, the first difference and both ranks.
#pragma once
#include <string>
#include <vector>

#include "cohort/collective/communicator.h"
#include "cohort/train/loop/model_and_data.h"

namespace cohort::train {

// Each rank throws, also when a rank cannot read its samples (that rank throws its own failure then).
void check_same_data(collective::Communicator& comm, const ModelAndData& m, const TrainConfig& config);

// What every rank has, in rank order. Collective.
std::vector<std::string> gather_fingerprints(collective::Communicator& comm, const ModelAndData& m);
// "data.train 'csv(file=a.csv)': number of samples: 600 on rank 0 but 599 on rank 1", or nothing where the two are the same.
std::string difference_of_data(const std::string& first, const std::string& other, int other_rank, const TrainConfig& config);

}  // namespace cohort::train
