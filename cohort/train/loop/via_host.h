// Collectives on tensors of a model that may be on a GPU: through the host's memory there, in place on the CPU.
// Threads, failure: as the communicator's.
#pragma once
#include <string>

#include "cohort/nn/tensor.h"

namespace cohort::train {

// Collective. "cpu"; "cuda": of the GPUs that this process sees the one of its number among the ranks that see the same; "cuda:1", which
// ranks may share. It is torch's current one afterwards. Kind::usage on all ranks: there is none of that name, or not one for each rank.
c10::Device device_for(collective::Communicator& comm, const std::string& text);

void broadcast_via_host(collective::Communicator& comm, const at::Tensor& tensor, const std::string& name);  // from rank 0
void average_via_host(collective::Communicator& comm, const at::Tensor& tensor, const std::string& name);

}  // namespace cohort::train
