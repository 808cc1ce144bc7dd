// The multilayer perceptron of two layers whose weights the ranks of a tensor-parallel group share (parallel/linear.h): flatten, linear cut
// by outputs and ReLU, linear cut by inputs. Names and first values are those of mlp with one hidden layer, and so are all results.
#include "cohort/nn/models/layers.h"
#include "cohort/nn/parallel/linear.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

std::vector<SpecParam> tp_mlp_params() {
  return {whole("in", "values of one sample", 784), whole("hidden", "width of the hidden layer: a multiple of the mesh's tp", 512),
          whole("out", "classes", 10)};
}

Model build_tp_mlp(const SpecValues& values) {
  const auto root = std::make_shared<torch::nn::Module>("tp_mlp");
  Model model(root, {.sizes = {values.integer("in")}});
  auto fc1 = own(*root, "fc1", ColumnParallelLinear(values.integer("in"), values.integer("hidden")));
  auto head = own(*root, "head", RowParallelLinear(values.integer("hidden"), values.integer("out")));
  model.add({"fc1", {fc1.ptr()}, [fc1](const at::Tensor& x) mutable { return torch::relu(fc1->forward(x.flatten(1))); }});
  model.add({"head", {head.ptr()}, [head](const at::Tensor& x) mutable { return head->forward(x); }});
  return model;
}

void init_tp_mlp(torch::nn::Module& root, const SpecValues&, const ParameterRng& rng) { init_default(root, rng); }

}  // namespace

extern const Architecture row_tp_mlp{.name = "tp_mlp",
                                     .about = "multilayer perceptron of two layers for meshes with tp",
                                     .params = tp_mlp_params,
                                     .build = build_tp_mlp,
                                     .init = init_tp_mlp,
                                     .takes = Takes::flat};

}  // namespace cohort::nn
