#include "cohort/nn/zoo.h"

#include "cohort/base/registry.h"
#include "cohort/nn/models_rows.inc"

namespace cohort::nn {
namespace {

SpecSchema schema_of(const Architecture& row) { return {std::string(row.name), std::string(row.about), row.params()}; }

}  // namespace

std::span<const Architecture* const> architectures() { return kModelsRows; }

Model make_model(const std::string& spec, std::uint64_t seed) {
  const Spec parsed = Spec::parse(spec);
  const Architecture& row = find_row(architectures(), parsed.name, "model");
  const SpecValues values = schema_of(row).read(parsed);
  Model model = row.build(values);
  row.init(model.root(), values, Dice(seed));
  return model;
}

std::string zoo_help() {
  std::string help;
  for (const Architecture* row : architectures()) help += schema_of(*row).help();
  return help;
}

}  // namespace cohort::nn
