// A Python torch.nn.Module as a model of the C++ engine. Its parameters and buffers are registered in a tree of C++ modules under the names
// that state_dict() has: the same tensors, not copies, so that whatever the engine does to their memory Python sees. forward and train/eval
// call Python.
//   std::vector<BlockOfModel> blocks{{"0", {children}, callable}, ..};    // run one after the other; python/cohort/trainer.py finds them
//   nn::Model model = model_of(module, blocks, slot);
// Buffers that state_dict() leaves out (persistent=False) stay each rank's own. Tied parameters count once, under their first name.
// Owner: the Model keeps the Python objects alive. Threads: as nn::Model; the GIL is taken where it is needed. Failure: Kind::usage naming
// the parameter that cannot be trained; Python's exceptions as python_call.h says.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cohort/nn/blocks.h"
#include "cohort/python/train/python_call.h"

namespace cohort::python {

struct BlockOfModel {
  std::string name;
  std::vector<PythonObject> modules;  // torch.nn.Modules of the tree
  PythonObject call;                  // tensor -> tensor
};

// With the GIL. slot: outlives the model. finish: what happens to the last block's output; none: nothing.
nn::Model model_of(const PythonObject& module, const std::vector<BlockOfModel>& blocks, ExceptionSlot& slot,
                   const std::function<at::Tensor(const at::Tensor&)>& finish);

// A copy of all parameters and buffers, to begin again with.
std::vector<at::Tensor> values_of(const nn::Model& model);
void set_values(const nn::Model& model, const std::vector<at::Tensor>& values);

// After the last step: every parameter and buffer in memory of its own, and none has a gradient. They lay in buckets, in memory that ranks
// share. What is still sharded (stage 3) becomes empty, because reading it would crash. False: there was such a one.
bool release_parameters(const nn::Model& model);

}  // namespace cohort::python
