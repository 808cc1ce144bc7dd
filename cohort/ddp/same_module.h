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
// Those of `whose`, "Sharded"; a line for each, "stage: 3".
void check_same_options(collective::Communicator& comm, const std::string& whose, const std::vector<std::string>& mine);
// "zero(buddy=true, offload=file:/scratch/a)" as "zero(buddy=true, offload=file)": the folder is each host's own.
std::string without_folder(std::string strategy);

}  // namespace cohort::ddp
