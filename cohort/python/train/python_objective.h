// A Python loss and Python metrics as the objective of a run. Each is a function (outputs, labels) of a batch that gives one number, the
// mean over its samples, or a tensor of one number for each sample. Without a loss it is the one that the labels have: cross entropy for
// classes and ids, mean squared error for floats (nn/objective.h); the model's outputs then have been through PythonDataset::as_rows().
// Owner: the Objective keeps the Python objects. Threads: the one that trains. Failure: python_call.h; Kind::usage for another result.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cohort/nn/objective.h"
#include "cohort/python/train/python_dataset.h"

namespace cohort::python {

struct PythonObjective {
  PythonObject loss;  // none: the default
  std::vector<std::pair<std::string, PythonObject>> metrics;
};

// slot, set: outlive it.
nn::Objective objective_of(const PythonObjective& of, const PythonDataset& set, ExceptionSlot& slot);

}  // namespace cohort::python
