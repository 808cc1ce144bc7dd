// A model of the zoo without its first values: for uses that need only shapes. Threads, failure: as zoo.h's make_model.
#pragma once
#include <string>

#include "cohort/nn/blocks.h"

namespace cohort::nn {

Model build_model(const std::string& spec);

}  // namespace cohort::nn
