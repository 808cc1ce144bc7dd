// Checks that all ranks have the same module: names, types and sizes of its tensors, compared before anything is averaged.
// Threads: the communicator's. Failure: Kind::usage on all ranks, naming the first difference and both sides.
#pragma once
#include <string>
#include <vector>

#include "cohort/collective/communicator.h"

namespace torch::nn {
class Module;
}

namespace cohort::ddp {

// "parameter fc1.weight Float [10, 784]", one line for each parameter and buffer.
std::vector<std::string> describe(const torch::nn::Module& module);
void check_same(collective::Communicator& comm, const std::vector<std::string>& mine);
void check_same_options(collective::Communicator& comm, const std::vector<std::string>& mine);  // "stage: 3", a line for each option

}  // namespace cohort::ddp
