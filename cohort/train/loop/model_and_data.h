// Model, data sets, transforms and objective of a run, from its settings or from a program of one's own, made before its ranks communicate.
// Everything that can be wrong with them is found here, on every rank for itself and before a file is written.
//   cohort::Trainer trainer(job, config, {.model = nn::model_of(Net()), .train = nn::dataset_of(Mine("train")), .objective = {mse}});
// Owner: values. Threads: one. Failure: Kind::usage, Kind::corrupt (data files).
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cohort/data/dataset.h"
#include "cohort/data/plan.h"
#include "cohort/data/transform.h"
#include "cohort/nn/blocks.h"
#include "cohort/nn/objective.h"
#include "cohort/train/config.h"

namespace cohort::train {

inline constexpr std::string_view kOwnModel = "own";  // what settings and checkpoints call one that the program made itself

struct ModelAndData {
  nn::Model model;                                     // its first values are rank 0's
  std::shared_ptr<const data::Dataset> train, test{};  // test may be none
  data::Transforms transforms{};                       // none: for pictures, those that config.data.transforms says
  nn::Objective objective{};                           // what it leaves out is the default of the data's labels
  // The same model again, with first values: an elastic job asks for it when the state of all workers was lost or is sharded.
  std::function<nn::Model()> make_model{};
  std::string name{kOwnModel};  // of the model, in messages and checkpoints
  std::string pretrained{};     // what was loaded from the file of first values, for people
  std::string from_data{};      // parameters of the model that the data set decided: "in=12, out=3"
  double counts_each = 0;       // what the loss counts for a sample: prepare() finds it
};

// Fills in what was left out and tries the model and the loss on a sample. Kind::usage with both sides of what does not fit.
void prepare(ModelAndData& m, const TrainConfig& config);
// The settings of a run with a model of the program's own: they name it, and no data sets.
TrainConfig settings_for(TrainConfig config, const ModelAndData& m);

void set_limits(const DataConfig& config);  // of what files may ask for (data/limits.h), for this process
ModelAndData load_model_and_data(const TrainConfig& config);

// How the training set is shared out, on this rank: over the dp places of config.mesh, so that the tp ranks of one have the same samples.
data::Share share_of(const TrainConfig& config, std::int64_t samples, int ranks, int rank);

// Tries one sample of zeros. Kind::usage with both shapes when the model does not take what the set gives, or has fewer classes.
void check_fit(nn::Model& model, const data::Form& form, const std::string& spec);

// Both shapes, and what to write in place of what contradicts the data, or else torch's reason.
[[noreturn]] void refuse_misfit(const nn::Input& input, const data::Form& form, const std::string& spec, const std::string& reason);

// Tries forward and backward in that precision. Kind::usage with torch's reason when one of the model's operators has no such kernel.
void check_precision(nn::Model& model, Precision precision, const std::string& spec);

}  // namespace cohort::train
