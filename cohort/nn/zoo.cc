#include "cohort/nn/zoo.h"

#include <ATen/Context.h>
#include <fmt/format.h>

#include "cohort/base/model_sizes.h"
#include "cohort/base/open_table.h"
#include "cohort/base/registry.h"
#include "cohort/base/text.h"
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

namespace {

OpenTable<Architecture>& table() {
  static OpenTable<Architecture> one(kModelsRows);
  return one;
}

}  // namespace

std::span<const Architecture* const> architectures() { return table().rows(); }
void add_architecture(const Architecture& row, std::string_view plugin) { table().add(row, "model", plugin); }

Model make_model(const std::string& spec, std::uint64_t seed) {
  const Chosen chosen = choose(spec);
  if (chosen.row.init == nullptr) at::manual_seed(seed);
  Model model = chosen.row.build(chosen.values);
  if (chosen.row.init != nullptr) chosen.row.init(model.root(), chosen.values, ParameterRng(seed));
  return model;
}

Model build_model(const std::string& spec) {
  const Chosen chosen = choose(spec);
  return chosen.row.build(chosen.values);
}

namespace {

// What the data say about a parameter of this name; 0: nothing.
std::int64_t decided(std::string_view name, Takes takes, const data::Form& form) {
  const bool image = takes == Takes::image && form.shape.size() == 3, tokens = form.input == data::Input::tokens;
  if (tokens != (takes == Takes::tokens)) return 0;
  if (name == "classes" || name == "out") return form.targets > 0 ? form.targets : form.ids > 0 ? 0 : form.classes;
  if (name == "in") return image ? form.shape[0] : takes == Takes::flat ? form.elements() : 0;
  if (name == "size") return image && form.shape[1] == form.shape[2] ? form.shape[1] : 0;
  if (name == "vocab") return form.vocabulary;
  return name == "context" && form.shape.size() == 1 ? form.shape[0] : 0;
}

}  // namespace

FittedSpec fit_spec(const std::string& text, const data::Form& form) {
  FittedSpec fitted{.spec = text, .from_data = {}};
  if (model_spec_of(text) != text) return fitted;
  Spec spec = Spec::parse(text);
  const Architecture* row = find_row_if_any(architectures(), spec.name);
  if (row == nullptr) return fitted;
  for (const SpecParam& p : row->params()) {
    const std::int64_t value = p.type == SpecParam::Type::integer && spec.find(p.name) == nullptr ? decided(p.name, row->takes, form) : 0;
    const bool shorter = p.name == "context" && p.preset && value <= parse_int(*p.preset);  // a model of 128 takes texts of 64
    if (value == 0 || shorter || static_cast<double>(value) < p.low || static_cast<double>(value) > p.high) continue;
    spec.params.push_back({.key = p.name, .value = std::to_string(value)});
    fitted.from_data += fmt::format("{}{}={}", fitted.from_data.empty() ? "" : ", ", p.name, value);
  }
  if (!fitted.from_data.empty()) fitted.spec = spec.to_string();
  return fitted;
}

std::string contradiction(const std::string& text, const data::Form& form) {
  const Spec spec = Spec::parse(model_spec_of(text));
  const Architecture* row = find_row_if_any(architectures(), spec.name);
  std::string found;
  if (row == nullptr) return found;
  for (const SpecParam& p : row->params()) {
    const Spec::Param* written = spec.find(p.name);
    const std::int64_t value = p.type == SpecParam::Type::integer && written != nullptr ? decided(p.name, row->takes, form) : 0;
    if (value == 0 || written->value == std::to_string(value) || (p.name == "context" && value < parse_int(written->value))) continue;
    found += fmt::format("{}{}={} in place of {}={}", found.empty() ? "" : ", ", p.name, value, p.name, printable(written->value));
  }
  return found;
}

std::string zoo_help() {
  std::string help;
  for (const Architecture* row : architectures()) help += schema_of(*row).help();
  for (const ModelSize& size : kModelSizes) help += fmt::format("{}: {}, {} M parameters\n", size.word, size.spec, size.millions);
  return help;
}

}  // namespace cohort::nn
