// Collectives on tensors of a model that may be on a GPU: through the host's memory there, in place on the CPU.
// Threads, failure: as the communicator's.
#pragma once
#include <string>

#include "cohort/nn/tensor.h"

namespace cohort::train {

// "cpu", "cuda" (one of the host's GPUs for each of its ranks, by turns), "cuda:1". Kind::usage: there is none of that name.
c10::Device device_for(const std::string& text, Rank rank);

void broadcast_via_host(collective::Communicator& comm, const at::Tensor& tensor, const std::string& name);  // from rank 0
void average_via_host(collective::Communicator& comm, const at::Tensor& tensor, const std::string& name);

}  // namespace cohort::train
