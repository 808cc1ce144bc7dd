// LeNet-5 (LeCun et al. 1998), as it is built today: every map of the second convolution sees all of the first, pools average, and the
// output is a linear layer in place of radial basis functions.
//   conv 5x5 to 6 | tanh | pool    conv 5x5 to 16 | tanh | pool    120 | tanh    84 | tanh    classes
// Images of 28 x 28 are padded to 32 x 32. 61,706 parameters for ten classes.
#include "cohort/base/error.h"
#include "cohort/nn/models/layers.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

std::vector<SpecParam> lenet5_params() {
  return {whole("in", "channels of the image", 1), whole("size", "height and width of the image: 28 (padded) or 32", 28, 28),
          whole("classes", "classes", 10)};
}

Model build_lenet5(const SpecValues& values) {
  const std::int64_t size = values.integer("size");
  if (size != 28 && size != 32) throw_failure(Kind::usage, "lenet5: size={}; its images are of 28 or 32", size);
  const auto root = std::make_shared<torch::nn::Module>("lenet5");
  Model model(root, {.sizes = {values.integer("in"), size, size}});
  auto conv1 = own(*root, "conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(values.integer("in"), 6, 5).padding((32 - size) / 2)));
  auto conv2 = own(*root, "conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 16, 5)));
  auto fc1 = own(*root, "fc1", torch::nn::Linear(400, 120));
  auto fc2 = own(*root, "fc2", torch::nn::Linear(120, 84));
  auto head = own(*root, "head", torch::nn::Linear(84, values.integer("classes")));
  for (const auto& [name, conv] : {std::pair{"conv1", conv1}, std::pair{"conv2", conv2}})
    model.add({name, {conv.ptr()}, [conv = conv](const at::Tensor& x) mutable { return torch::avg_pool2d(torch::tanh(conv(x)), 2); }});
  for (const auto& [name, layer] : {std::pair{"fc1", fc1}, std::pair{"fc2", fc2}})
    model.add({name, {layer.ptr()}, [layer = layer](const at::Tensor& x) mutable { return torch::tanh(layer(x.flatten(1))); }});
  model.add({"head", {head.ptr()}, [head](const at::Tensor& x) mutable { return head(x); }});
  return model;
}

void init_lenet5(torch::nn::Module& root, const SpecValues&, const ParameterRng& rng) { init_default(root, rng); }

}  // namespace

extern const Architecture row_lenet5{
    .name = "lenet5", .about = "LeNet-5", .params = lenet5_params, .build = build_lenet5, .init = init_lenet5, .takes = Takes::image};

}  // namespace cohort::nn
