// Models of a known size by one word: `gpt-50m` is a spec of the model zoo spelled out. Programs that only launch or plan read it too.
// Threads: any. To add a size: a row, with the parameter count that forecast_test holds it to.
#pragma once
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace cohort {

struct ModelSize {
  std::string_view word, spec;
  double millions;  // of parameters
};
inline constexpr ModelSize kModelSizes[] = {
    {"gpt-tiny", "gpt(vocab=256, context=128, d=128, heads=4, layers=4)", 0.843},
    {"gpt-50m", "gpt(vocab=256, context=128, d=512, heads=8, layers=16, tied=false)", 50.77},
    {"gpt2-small", "gpt(vocab=50257, context=1024, d=768, heads=12, layers=12)", 124.4},
};

// The spec behind a word; what is no such word is a spec already.
inline std::string model_spec_of(std::string_view spec) {
  const auto* found = std::find_if(std::begin(kModelSizes), std::end(kModelSizes), [&](const ModelSize& m) { return m.word == spec; });
  return std::string(found == std::end(kModelSizes) ? spec : found->spec);
}

}  // namespace cohort
