// Closed forms for a Transformer, from the papers: what a planner must agree with before it may be believed about other models.
//   parameters   P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h))                                      Narayanan et al. 2021
//   flops        F = 72 B s l h^2 (1 + s/(6 h) + V/(16 l h)), 96 instead of 72 with full recomputation
//   activations  bytes a layer keeps for backward, 16 bits an element                                 Korthikanti et al. 2022, table 2
//     none sbh (34 + 5 a s/h)        TP sbh (10 + 24/t + 5 a s/(h t))     TP + SP sbh/t (34 + 5 a s/h)
//     selective: without the 5 a s/h of attention                          full: 2 sbh, the layer's input alone
// Threads: pure functions.
#pragma once

namespace cohort::plan {

struct TransformerShape {
  double layers = 1, hidden = 1, heads = 1, sequence = 1, vocabulary = 0, batch = 1;
};

double transformer_parameters(const TransformerShape& shape);
double transformer_flops(const TransformerShape& shape, bool recompute);                    // of one step over the batch
double training_days(double parameters, double tokens, double devices, double flops_each);  // 8 T P / (n X)

struct ModelParallelism {
  double tensor_parallel = 1;      // t
  bool sequence_parallel = false;  // layer norms and dropouts are split over the tensor-parallel ranks too
};
enum class SavedActivations { everything, all_but_attention, inputs };                                  // recompute: none, selective, full
double activation_bytes(const TransformerShape& shape, ModelParallelism split, SavedActivations keep);  // one layer, one device

}  // namespace cohort::plan
