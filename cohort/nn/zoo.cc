#include "cohort/nn/zoo.h"

#include <fmt/format.h>

#include "cohort/base/model_sizes.h"
#include "cohort/base/registry.h"
#include "cohort/nn/build.h"
#include "cohort/nn/models_rows.inc"

namespace cohort::nn {
namespace {

SpecSchema schema_of(const Architecture& row) { return {std::string(row.name), std::string(row.about), row.params()}; }

struct Chosen {
  const Architecture& row;
  SpecValues values;
};

Chosen choose(const std::string& spec) {
  const Spec parsed = Spec::parse(model_spec_of(spec));
  const Architecture& row = find_row(architectures(), parsed.name, "model");
  return {row, schema_of(row).read(parsed)};
}

}  // namespace

std::span<const Architecture* const> architectures() { return kModelsRows; }

Model make_model(const std::string& spec, std::uint64_t seed) {
  const Chosen chosen = choose(spec);
  Model model = chosen.row.build(chosen.values);
  chosen.row.init(model.root(), chosen.values, ParameterRng(seed));
  return model;
}

Model build_model(const std::string& spec) {
  const Chosen chosen = choose(spec);
  return chosen.row.build(chosen.values);
}

std::string zoo_help() {
  std::string help;
  for (const Architecture* row : architectures()) help += schema_of(*row).help();
  for (const ModelSize& size : kModelSizes) help += fmt::format("{}: {}, {} M parameters\n", size.word, size.spec, size.millions);
  return help;
}

}  // namespace cohort::nn
