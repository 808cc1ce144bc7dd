// cohort::checkpoint(function, inputs...): activation recomputation for programs on libtorch; the story is in cohort/nn/recompute.h.
// It shares its name with the namespace of saved runs, so a file that reads those (cohort/checkpoint/*.h) says cohort::nn::checkpoint.
#pragma once
#include "cohort/nn/recompute.h"

namespace cohort {
using nn::checkpoint;
}  // namespace cohort
