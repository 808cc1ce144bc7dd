// Models by name: make_model("gpt(vocab=256, d=128, heads=4, layers=4)", seed).
// An architecture is a row, not a class: it reads its parameters from a spec string, builds blocks, and draws their first values.
// Owner: the table, which never changes. Threads: any. Failure: Kind::usage naming the model, the parameter and what is allowed.
// To add one: models/<word>.cc with row_<word>, the word in models/CMakeLists.txt, models/<word>_test.cc.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "cohort/base/spec.h"
#include "cohort/nn/blocks.h"
#include "cohort/nn/init.h"

namespace cohort::nn {

struct Architecture {
  std::string_view name, about;
  std::vector<SpecParam> (*params)();
  Model (*build)(const SpecValues& values);                                                  // parameters have no values yet
  void (*init)(torch::nn::Module& root, const SpecValues& values, const ParameterRng& rng);  // sets them
};

std::span<const Architecture* const> architectures();
// The same spec and seed give the same bits, on every rank and in every thread.
Model make_model(const std::string& spec, std::uint64_t seed);
std::string zoo_help();  // every architecture with its parameters, for people

}  // namespace cohort::nn
