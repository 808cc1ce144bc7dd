#include "cohort/nn/loss.h"

#include <fmt/ranges.h>

#include "cohort/base/error.h"
#include "cohort/base/open_table.h"
#include "cohort/base/registry.h"
#include "cohort/nn/losses_rows.inc"

namespace cohort::nn {
namespace {

SpecSchema schema_of(const LossKind& kind) { return {std::string(kind.name), std::string(kind.about), kind.params()}; }

Spec spec_of(std::string_view text, bool regression) {
  const Spec spec = Spec::parse(text);
  return spec.name == "auto" ? Spec::parse(regression ? "mse" : "cross_entropy") : spec;
}

const LossKind& kind_of(std::string_view text, bool regression) {
  const LossKind& kind = find_row(loss_kinds(), spec_of(text, regression).name, "loss");
  if (kind.regression != regression)
    throw_failure(Kind::usage, "loss={} is for {}, the data set has {}; say loss=auto, or one of: {}", kind.name,
                  kind.regression ? "float targets" : "classes and tokens", regression ? "float targets" : "classes or tokens",
                  regression ? "mse, mae, huber" : "cross_entropy");
  return kind;
}

}  // namespace

namespace {

OpenTable<LossKind>& table() {
  static OpenTable<LossKind> one(kLossesRows);
  return one;
}

}  // namespace

std::span<const LossKind* const> loss_kinds() { return table().rows(); }
void add_loss(const LossKind& row, std::string_view plugin) { table().add(row, "loss", plugin); }

std::string loss_help() {
  std::string help;
  for (const LossKind* kind : loss_kinds()) help += schema_of(*kind).help();
  return help;
}

ConfiguredLoss::ConfiguredLoss(std::string_view spec, bool regression)
    : kind_(kind_of(spec, regression)), values_(schema_of(kind_).read(spec_of(spec, regression))) {}

Loss ConfiguredLoss::operator()(const at::Tensor& outputs, const at::Tensor& labels, const LossOptions& options) const {
  Loss loss = kind_.sum(outputs, labels, values_, options);
  if (options.reduction == Reduction::mean && loss.count > 0) loss.value = loss.value.div(static_cast<double>(loss.count));
  return loss;
}

double ConfiguredLoss::measure_sum(const at::Tensor& outputs, const at::Tensor& labels) const {
  if (!kind_.regression) return static_cast<double>(correct(outputs, labels));
  check_targets(outputs, labels);
  const at::Tensor errors = outputs.to(at::kDouble).sub(labels.to(at::kDouble));
  return (kind_.measure == "rmse" ? errors.square() : errors.abs()).sum().item<double>();
}

void check_targets(const at::Tensor& outputs, const at::Tensor& targets) {
  if (outputs.sizes() != targets.sizes())
    throw_failure(Kind::usage, "outputs [{}] and targets [{}] do not fit; a model for regression has as many outputs as there are targets",
                  fmt::join(outputs.sizes(), ", "), fmt::join(targets.sizes(), ", "));
}

Loss loss_of(const at::Tensor& logits, const at::Tensor& labels, const LossOptions& options) {
  static const ConfiguredLoss cross_entropy("cross_entropy", false);
  return cross_entropy(logits, labels, options);
}

}  // namespace cohort::nn
