// Models by name: make_model("gpt(vocab=256, d=128, heads=4, layers=4)", seed).
// An architecture is a row, not a class: it reads its parameters from a spec string, builds blocks, and draws their first values.
// Owner: the table, to which plugins add (plugin.h). Threads: any. Failure: Kind::usage naming the model, the parameter and what is
// allowed. To add one: models/<word>.cc with row_<word>, the word in models/CMakeLists.txt, models/<word>_test.cc.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "cohort/base/spec.h"
#include "cohort/data/dataset.h"
#include "cohort/nn/blocks.h"
#include "cohort/nn/init.h"

namespace cohort::nn {

// Which of its parameters a model can take from the data set: of an image its channels (in), height and width (size) and classes; flat
// values and outputs (in, out); tokens (vocab, classes, a longer context).
enum class Takes { nothing, image, flat, tokens };

struct Architecture {
  std::string_view name, about;
  std::vector<SpecParam> (*params)();
  Model (*build)(const SpecValues& values);  // parameters have no values yet
  // Sets them; none: they are as build() drew them, with torch's generator at the seed.
  void (*init)(torch::nn::Module& root, const SpecValues& values, const ParameterRng& rng);
  Takes takes = Takes::nothing;
};

std::span<const Architecture* const> architectures();
void add_architecture(const Architecture& row, std::string_view plugin);  // row: stays for good
// The same spec and seed give the same bits, on every rank and in every thread.
Model make_model(const std::string& spec, std::uint64_t seed);

// The spec with those parameters added that were not written and that the data set decides. What was written stays, also where it does not
// fit: check_fit() says so. A model of a known size by one word (gpt-50m) stays as it is.
struct FittedSpec {
  std::string spec;
  std::string from_data;  // "in=12, out=3"; empty: nothing
};
FittedSpec fit_spec(const std::string& spec, const data::Form& form);
// What in the spec contradicts the data: "in=784 in place of in=100"; empty when no single parameter does.
std::string contradiction(const std::string& spec, const data::Form& form);

std::string zoo_help();  // every architecture with its parameters, for people

}  // namespace cohort::nn
