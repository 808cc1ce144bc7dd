// Checks that all ranks of a run have the same settings. Ranks of several hosts read a file each, and a batch or an optimizer that differs
// would not show before the end of the training, if ever. Threads: the communicator's. Failure: Kind::usage, naming the first setting that
// differs and both sides.
#pragma once
#include <string>

#include "cohort/collective/communicator.h"
#include "cohort/train/loop/model_and_data.h"

namespace cohort::train {

// yaml: as Config writes it, two spaces a level. On every rank alike: each of them throws.
void check_same_settings(collective::Communicator& comm, const std::string& yaml);

// The same of a model and data that the program made itself: names and shapes of tensors, sizes and forms of data sets, metrics.
void check_same_model(collective::Communicator& comm, const ModelAndData& own);

// "data.batch is 32 on rank 0 but 64 on rank 1", or nothing where the two are the same.
std::string difference_of_settings(const std::string& first, const std::string& other, int other_rank);

}  // namespace cohort::train
