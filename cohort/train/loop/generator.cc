#include "cohort/train/loop/generator.h"

#include <torch/torch.h>

#include <algorithm>
#include <limits>

#include "cohort/base/error.h"
#include "cohort/base/spec.h"

namespace cohort::train {
namespace {

// Of what the run was trained on: text(tokens=..) says it, ngrams are words.
data::Tokenizer tokenizer_of(const Predictor& predictor) {
  using Unit = data::Tokenizer::Unit;
  const std::string from = predictor.trained_on();
  const Spec spec = from.empty() ? Spec{} : Spec::parse(from);
  if (spec.name != "text" && spec.name != "ngrams")
    throw_failure(Kind::usage, "the run in {} was trained on '{}': text comes from models that were trained on text(..) or ngrams(..)",
                  predictor.checkpoint_path(), from);
  const Spec::Param* const tokens = spec.find("tokens");
  const Unit unit = spec.name == "ngrams" ? Unit::words : tokens == nullptr ? Unit::bytes : data::Tokenizer::unit_of(tokens->value);
  return {unit, predictor.form().names, predictor.checkpoint_path()};
}

}  // namespace

Generator::Generator(const std::string& path, const std::vector<std::string>& plugins)
    : predictor_(path, plugins), tokenizer_(tokenizer_of(predictor_)) {}

// The logits of the next token.
std::vector<float> Generator::logits_after(const std::vector<std::int64_t>& tokens) const {
  const auto context = static_cast<std::size_t>(predictor_.form().shape[0]);
  const bool words = tokenizer_.unit() == data::Tokenizer::Unit::words;
  std::vector<std::int64_t> seen(words && tokens.size() < context ? context - tokens.size() : 0, 0);
  seen.insert(seen.end(), tokens.end() - static_cast<std::ptrdiff_t>(std::min(context, tokens.size())), tokens.end());
  at::Tensor out = predictor_.forward(torch::tensor(seen).unsqueeze(0));
  out = (out.dim() == 3 ? out.select(1, -1) : out)[0].to(torch::kFloat).contiguous();
  if (out.dim() != 1 || out.numel() != tokenizer_.size())
    throw_failure(Kind::usage, "model '{}' gives {} numbers for the next of {} tokens: it is no language model", predictor_.model_spec(),
                  out.numel(), tokenizer_.size());
  std::vector<float> logits(out.const_data_ptr<float>(), out.const_data_ptr<float>() + out.numel());
  if (words) logits[0] = -std::numeric_limits<float>::infinity();
  return logits;
}

std::string Generator::generate(const GenerateOptions& o) const {
  check(o.sampling);
  std::vector<std::int64_t> tokens = tokenizer_.encode(o.prompt, "the prompt");
  if (tokens.empty())
    throw_failure(Kind::usage, "the prompt '{}' has no token that the model knows; say --prompt with words of the training text", o.prompt);
  data::Rng rng(o.seed, o.text);
  for (std::int64_t i = 0; i < o.tokens; ++i) tokens.push_back(sample_token(logits_after(tokens), o.sampling, rng));
  return tokenizer_.decode(tokens);
}

}  // namespace cohort::train
