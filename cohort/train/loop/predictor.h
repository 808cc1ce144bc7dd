// Inference with a trained model: pictures, folders of them and tables in, classes and probabilities or values out. Model, transforms,
// class names and what a table's columns are come from the checkpoint.
//   Predictor p("runs/fashion");                    // a run's folder (its newest whole checkpoint), or one checkpoint's
//   for (const Guess& g : p.classify("boot.png", 3)) fmt::print("{} {:.1f} %\n", g.name, 100 * g.probability);
//   const auto set = p.open("flowers.csv");         // or a folder of pictures
//   p.predict(*set, {}, [&](const Prediction& row) { .. });
// Owner: the caller. Threads: one. Failure: Kind::usage (no checkpoint there), Kind::corrupt (a damaged one, a file that is no picture).
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/checkpoint/store.h"
#include "cohort/data/dataset.h"
#include "cohort/data/transform.h"
#include "cohort/nn/blocks.h"
#include "cohort/nn/loss.h"

namespace cohort::train {

struct Guess {
  std::int64_t label = 0;
  std::string name;  // the class's, or its number
  double probability = 0;
};

struct Score {
  std::int64_t correct = 0, samples = 0;  // samples: labels that were there; of a regression: targets
  double loss = 0;
  double error = 0;                  // of a regression ..
  std::string measure = "accuracy";  // .. and which: rmse, mae
  bool regression() const { return measure != "accuracy"; }
  double accuracy() const { return samples == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(samples); }
};

// Of one sample of a set.
struct Prediction {
  std::string place;            // the picture's path; the number of a table's row, from 1
  std::vector<Guess> guesses;   // classes, likeliest first ..
  std::vector<double> values;   // .. or what a regression predicts
  std::vector<double> targets;  // what it should have been, where the set says so
  std::string label;            // likewise: the class
};

struct PredictOptions {
  std::int64_t limit = 0;  // the first so many samples; 0: all
  int top = 1;             // guesses of each
};

class Predictor {
 public:
  // plugins: libraries with the run's model (nn/plugin.h); none: those the run was trained with.
  explicit Predictor(const std::string& path, const std::vector<std::string>& plugins = {});

  std::vector<Guess> classify(const std::string& picture, int top) const;  // PNG or JPEG, brought to the model's size; likeliest first
  Score score(const std::string& dataset_spec, std::int64_t limit) const;  // the first `limit` samples; 0: all
  // A folder of pictures, with or without a subfolder for each class, or a table as the training set was one, with or without its labels.
  std::shared_ptr<const data::Dataset> open(const std::string& path) const;
  // One after the other, in the order of the set. The score counts what has labels.
  Score predict(const data::Dataset& set, const PredictOptions& options, const std::function<void(const Prediction&)>& take) const;
  bool regression() const { return form_.targets > 0; }
  std::vector<std::string> target_names() const;  // "value" or "value_1" .. where the training set had no names
  const std::string& checkpoint_path() const { return found_.path; }
  std::int64_t step() const { return found_.manifest.step; }
  const std::string& model_spec() const { return spec_; }
  const data::Form& form() const { return form_; }
  std::string trained_on() const;                      // the training set's spec; empty: the checkpoint does not say it
  at::Tensor forward(const at::Tensor& inputs) const;  // without gradients, in evaluation

 private:
  const checkpoint::Checkpoint found_;
  const std::string spec_;
  std::vector<Guess> guesses_of(const at::Tensor& logits, int top) const;
  std::string class_name(std::int64_t label) const;
  Prediction prediction_of(const data::Dataset& set, std::int64_t index, const at::Tensor& outputs, const at::Tensor& labels,
                           int top) const;
  void check_form(const data::Form& form, const std::string& source) const;

  data::Form form_;
  nn::ConfiguredLoss loss_;
  data::Transforms transforms_;
  nn::Model model_;
};

}  // namespace cohort::train
