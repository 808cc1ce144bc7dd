// Text from a language model: the tokens of a prompt, then one token after the other, each drawn from what the model says of the text so
// far (train/sampling.h). Model, vocabulary and kind of tokens come from the checkpoint.
//   Generator g("runs/tales");
//   fmt::print("{}\n", g.generate({.prompt = "the king", .tokens = 50, .sampling = {.temperature = 0.8}, .seed = 3}));
// A model of next tokens (gpt, lstm) sees the last `context` tokens; one that was trained on `ngrams` has its words padded in front, and
// draws no padding.
// Owner: the caller. Threads: one. Failure: Kind::usage for runs that trained no language model and for prompts without a known token.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/data/tokens/tokenizer.h"
#include "cohort/train/loop/predictor.h"
#include "cohort/train/sampling.h"

namespace cohort::train {

struct GenerateOptions {
  std::string prompt;
  std::int64_t tokens = 100;  // to add
  SamplingOptions sampling{};
  std::uint64_t seed = 1;
  std::uint64_t text = 0;  // of several from one seed
};

class Generator {
 public:
  explicit Generator(const std::string& path, const std::vector<std::string>& plugins = {});
  std::string generate(const GenerateOptions& options) const;  // with the prompt
  const Predictor& predictor() const { return predictor_; }

 private:
  std::vector<float> logits_after(const std::vector<std::int64_t>& tokens) const;

  Predictor predictor_;
  data::Tokenizer tokenizer_;
};

}  // namespace cohort::train
