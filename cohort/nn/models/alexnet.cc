// AlexNet in its one-tower form (Krizhevsky 2014, arXiv:1404.5997), with torchvision's layout and parameter names.
#include "cohort/nn/models/layers.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::Dropout;
using torch::nn::Linear;
using torch::nn::MaxPool2d;
using torch::nn::MaxPool2dOptions;
using torch::nn::ReLU;

std::vector<SpecParam> alexnet_params() {
  return {whole("in", "channels of the image", 3), whole("classes", "classes", 1000),
          whole("size", "height and width of the image", 224, 63), share("dropout", "before the first two linear layers", 0.5)};
}

torch::nn::Sequential features_of(std::int64_t in) {
  const auto pool = [] { return MaxPool2d(MaxPool2dOptions(3).stride(2)); };
  return torch::nn::Sequential(Conv2d(Conv2dOptions(in, 64, 11).stride(4).padding(2)), ReLU(), pool(),  //
                               Conv2d(Conv2dOptions(64, 192, 5).padding(2)), ReLU(), pool(),            //
                               Conv2d(Conv2dOptions(192, 384, 3).padding(1)), ReLU(),                   //
                               Conv2d(Conv2dOptions(384, 256, 3).padding(1)), ReLU(),                   //
                               Conv2d(Conv2dOptions(256, 256, 3).padding(1)), ReLU(), pool());
}

Model build_alexnet(const SpecValues& values) {
  constexpr std::int64_t kSide = 6;  // of the averaged feature map, whatever the size of the image
  const std::int64_t size = values.integer("size");
  const double dropout = values.real("dropout");
  const auto root = std::make_shared<torch::nn::Module>("alexnet");
  Model model(root, {.sizes = {values.integer("in"), size, size}});
  auto features = own(*root, "features", features_of(values.integer("in")));
  auto classifier = own(*root, "classifier",
                        torch::nn::Sequential(Dropout(dropout), Linear(256 * kSide * kSide, 4096), ReLU(), Dropout(dropout),
                                              Linear(4096, 4096), ReLU(), Linear(4096, values.integer("classes"))));
  model.add(slice("conv1", features, 0, 3));
  model.add(slice("conv2", features, 3, 6));
  model.add(slice("conv3", features, 6, 8));
  model.add(slice("conv4", features, 8, 10));
  model.add(slice("conv5", features, 10, 13));
  model.add({"average", {}, [](const at::Tensor& x) { return torch::adaptive_avg_pool2d(x, {kSide, kSide}).flatten(1); }});
  model.add(slice("fc6", classifier, 0, 3));
  model.add(slice("fc7", classifier, 3, 6));
  model.add(slice("fc8", classifier, 6, 7));
  return model;
}

void init_alexnet(torch::nn::Module& root, const SpecValues&, const ParameterRng& rng) { init_default(root, rng); }

}  // namespace

extern const Architecture row_alexnet{.name = "alexnet",
                                      .about = "AlexNet, one tower",
                                      .params = alexnet_params,
                                      .build = build_alexnet,
                                      .init = init_alexnet,
                                      .takes = Takes::image};

}  // namespace cohort::nn
