// The network of the American Sign Language tutorials: 28 x 28 grey images of hands, 24 letters (J and Z need motion).
//   conv 75 | batch norm | pool    conv 50 | dropout 0.2 | batch norm | pool    conv 25 | batch norm | pool    dense 512 | dropout 0.3 |
//   dense 24
// Convolutions 3x3 with ReLU and padding 1; pools of 2 round up (28, 14, 7, 4), as the tutorial's "same" padding does.
#include "cohort/nn/models/layers.h"
#include "cohort/nn/sync_batch_norm.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

std::vector<SpecParam> asl_cnn_params() {
  return {whole("in", "channels of the image", 1), whole("size", "height and width of the image", 28), whole("classes", "letters", 24),
          share("conv_dropout", "after the second convolution", 0.2), share("dense_dropout", "before the last layer", 0.3)};
}

void add_asl_stage(Model& model, const std::string& name, std::int64_t in, std::int64_t out, double dropout) {
  auto stage = own(model.root(), name, torch::nn::Sequential());
  stage->push_back("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1)));
  stage->push_back("relu", torch::nn::ReLU());
  if (dropout > 0) stage->push_back("dropout", torch::nn::Dropout(dropout));
  stage->push_back("norm", SyncBatchNorm(BatchNormOptions{.features = out, .eps = 1e-3, .momentum = 0.01}));  // the defaults of Keras
  stage->push_back("pool", torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2).ceil_mode(true)));
  model.add(slice(name, stage, 0, stage->size()));
}

Model build_asl_cnn(const SpecValues& values) {
  const std::int64_t in = values.integer("in");
  std::int64_t size = values.integer("size");
  const auto root = std::make_shared<torch::nn::Module>("asl_cnn");
  Model model(root, {.sizes = {in, size, size}});
  add_asl_stage(model, "stage1", in, 75, 0);
  add_asl_stage(model, "stage2", 75, 50, values.real("conv_dropout"));
  add_asl_stage(model, "stage3", 50, 25, 0);
  for (int pool = 0; pool < 3; ++pool) size = (size + 1) / 2;
  auto dense = own(*root, "dense", torch::nn::Linear(25 * size * size, 512));
  auto dropout = own(*root, "dropout", torch::nn::Dropout(values.real("dense_dropout")));
  auto head = own(*root, "head", torch::nn::Linear(512, values.integer("classes")));
  model.add({"dense", {dense.ptr(), dropout.ptr()}, [dense, dropout](const at::Tensor& x) mutable {
               return dropout(torch::relu(dense(x.flatten(1))));
             }});
  model.add({"head", {head.ptr()}, [head](const at::Tensor& x) mutable { return head(x); }});
  return model;
}

void init_asl_cnn(torch::nn::Module& root, const SpecValues&, const ParameterRng& rng) { init_default(root, rng); }

}  // namespace

extern const Architecture row_asl_cnn{.name = "asl_cnn",
                                      .about = "the sign language network of the tutorials",
                                      .params = asl_cnn_params,
                                      .build = build_asl_cnn,
                                      .init = init_asl_cnn,
                                      .takes = Takes::image};

}  // namespace cohort::nn
