// Inference with a trained model: pictures in, classes and probabilities out. Model, transforms and class names come from the checkpoint.
//   Predictor p("runs/fashion");                    // a run's folder (its newest whole checkpoint), or one checkpoint's
//   for (const Guess& g : p.classify("boot.png", 3)) fmt::print("{} {:.1f} %\n", g.name, 100 * g.probability);
// Owner: the caller. Threads: one. Failure: Kind::usage (no checkpoint there), Kind::corrupt (a damaged one, a file that is no picture).
#pragma once
#include <string>
#include <vector>

#include "cohort/checkpoint/store.h"
#include "cohort/data/dataset.h"
#include "cohort/data/transform.h"
#include "cohort/nn/blocks.h"

namespace cohort::train {

struct Guess {
  std::int64_t label = 0;
  std::string name;  // the class's, or its number
  double probability = 0;
};

struct Score {
  std::int64_t correct = 0, samples = 0;
  double loss = 0;
  double accuracy() const { return samples == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(samples); }
};

class Predictor {
 public:
  explicit Predictor(const std::string& path);

  std::vector<Guess> classify(const std::string& picture, int top) const;  // PNG or JPEG, brought to the model's size; likeliest first
  Score score(const std::string& dataset_spec, std::int64_t limit) const;  // the first `limit` samples; 0: all
  const std::string& checkpoint_path() const { return found_.path; }
  std::int64_t step() const { return found_.manifest.step; }
  const std::string& model_spec() const { return spec_; }

 private:
  const checkpoint::Checkpoint found_;
  const std::string spec_;
  data::Form form_;
  data::Transforms transforms_;
  nn::Model model_;
};

}  // namespace cohort::train
