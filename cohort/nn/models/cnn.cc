// The small convolutional network of MNIST examples: two convolutions 3x3 (32 and 64 filters), each with ReLU and a pool of 2, then 128,
// then classes.
#include "cohort/nn/models/layers.h"
#include "cohort/nn/ops/linear.h"
#include "cohort/nn/ops/relu_pool.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

std::vector<SpecParam> cnn_params() {
  return {whole("in", "channels of the image", 1), whole("size", "height and width of the image", 28, 4), whole("classes", "classes", 10),
          norm_param(/*none=*/true)};
}

// Convolution, norm if any, ReLU, pool; as a Sequential `name` of the root and a block of that name.
void add_stage(Model& model, const std::string& name, std::int64_t in, std::int64_t out, const std::string& norm) {
  auto stage = own(model.root(), name, torch::nn::Sequential());
  stage->push_back("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1)));
  if (auto made = make_norm(norm, out); !made.is_empty()) stage->push_back("norm", made);
  stage->push_back("pool", ReluPool());
  model.add(slice(name, stage, 0, stage->size()));
}

Model build_cnn(const SpecValues& values) {
  const std::int64_t in = values.integer("in");
  const std::int64_t size = values.integer("size");
  const auto root = std::make_shared<torch::nn::Module>("cnn");
  Model model(root, {.sizes = {in, size, size}});
  add_stage(model, "stage1", in, 32, norm_of(values, true));
  add_stage(model, "stage2", 32, 64, norm_of(values, true));
  const std::int64_t left = size / 4;
  auto fc = own(*root, "fc", torch::nn::Linear(64 * left * left, 128));
  auto head = own(*root, "head", torch::nn::Linear(128, values.integer("classes")));
  model.add({"fc", {fc.ptr()}, [fc](const at::Tensor& x) mutable { return torch::relu(linear(*fc, x.flatten(1))); }});
  model.add({"head", {head.ptr()}, [head](const at::Tensor& x) mutable { return linear(*head, x); }});
  return model;
}

void init_cnn(torch::nn::Module& root, const SpecValues&, const ParameterRng& rng) { init_default(root, rng); }

}  // namespace

extern const Architecture row_cnn{.name = "cnn",
                                  .about = "small convolutional network for MNIST and its kin",
                                  .params = cnn_params,
                                  .build = build_cnn,
                                  .init = init_cnn,
                                  .takes = Takes::image};

}  // namespace cohort::nn
