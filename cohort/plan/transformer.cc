#include "cohort/plan/transformer.h"

namespace cohort::plan {

double transformer_parameters(const TransformerShape& m) {
  const double l = m.layers, h = m.hidden;
  return 12 * l * h * h * (1 + 13 / (12 * h) + (m.vocabulary + m.sequence) / (12 * l * h));
}

double transformer_flops(const TransformerShape& m, bool recompute) {
  const double l = m.layers, h = m.hidden, s = m.sequence;
  return (recompute ? 96 : 72) * m.batch * s * l * h * h * (1 + s / (6 * h) + m.vocabulary / (16 * l * h));
}

double training_days(double parameters, double tokens, double devices, double flops_each) {
  constexpr double kSecondsADay = 86400;
  return 8 * tokens * parameters / (devices * flops_each) / kSecondsADay;
}

double activation_bytes(const TransformerShape& m, ModelParallelism split, SavedActivations keep) {
  const double sbh = m.sequence * m.batch * m.hidden, t = split.tensor_parallel;
  if (keep == SavedActivations::inputs) return 2 * sbh;
  const double attention = keep == SavedActivations::all_but_attention ? 0 : 5 * m.heads * m.sequence / m.hidden;
  if (split.sequence_parallel) return sbh / t * (34 + attention);
  return sbh * (10 + 24 / t + attention / t);
}

}  // namespace cohort::plan
