// Model, data sets and transforms of a run, loaded before its ranks communicate. Everything that settings can get wrong is found here,
// on every rank for itself and before a file is written. Owner: values. Threads: one. Failure: Kind::usage, Kind::corrupt (data files).
#pragma once
#include <memory>

#include "cohort/data/dataset.h"
#include "cohort/data/plan.h"
#include "cohort/data/transform.h"
#include "cohort/nn/blocks.h"
#include "cohort/train/config.h"

namespace cohort::train {

struct ModelAndData {
  nn::Model model;
  std::shared_ptr<const data::Dataset> train, test;  // test may be none
  data::Transforms transforms;
};

ModelAndData load_model_and_data(const TrainConfig& config);

// How the training set is shared out, on this rank.
data::Share share_of(const TrainConfig& config, std::int64_t samples, int ranks, int rank);

// Tries one sample of zeros. Kind::usage with both shapes when the model does not take what the set gives, or has fewer classes.
void check_fit(nn::Model& model, const data::Form& form, const std::string& spec);

// Tries forward and backward in that precision. Kind::usage with torch's reason when one of the model's operators has no such kernel.
void check_precision(nn::Model& model, Precision precision, const std::string& spec);

}  // namespace cohort::train
