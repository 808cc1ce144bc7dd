// Wide residual networks (Zagoruyko and Komodakis 2016, arXiv:1605.07146), as the Fashion-MNIST tutorial of Horovod trains them:
//   stem 3x3 to 16, norm, ReLU    three stages of (depth - 4) / 6 blocks, 16, 32 and 64 times `width` channels    norm, ReLU, average,
//   dense block   x + conv(dropout(relu(bn(conv(relu(bn(x)))))))            pre-activation; a 1x1 convolution where channels change
// Names: conv1, bn1, layer1.0.bn1, .conv1, .bn2, .conv2, .shortcut, bn, fc. WRN-16-10 on grey images has 17,116,378 parameters.
#include <fmt/format.h>

#include <array>

#include "cohort/base/error.h"
#include "cohort/nn/models/layers.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

std::vector<SpecParam> wide_resnet_params() {
  return {whole("in", "channels of the image", 1),
          whole("size", "height and width of the image", 28),
          whole("classes", "classes", 10),
          whole("depth", "layers: 6 n + 4", 16, 10),
          whole("width", "channels of the stages, times 16, 32, 64", 1),
          share("dropout", "between the convolutions of a block", 0),
          norm_param(/*none=*/false)};
}

torch::nn::Conv2d wide_conv(std::int64_t in, std::int64_t out, std::int64_t side, std::int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, side).stride(stride).padding(side / 2).bias(false));
}

struct WideBlockImpl : torch::nn::Module {
  struct Options {
    std::int64_t in, out, stride;
    double dropout;
    std::string norm;
  };
  explicit WideBlockImpl(const Options& o) : norms{make_norm(o.norm, o.in), make_norm(o.norm, o.out)} {
    register_module("bn1", norms[0].ptr());
    conv1 = register_module("conv1", wide_conv(o.in, o.out, 3, o.stride));
    register_module("bn2", norms[1].ptr());
    dropout = register_module("dropout", torch::nn::Dropout(o.dropout));
    conv2 = register_module("conv2", wide_conv(o.out, o.out, 3, 1));
    if (o.in != o.out || o.stride != 1) shortcut = register_module("shortcut", wide_conv(o.in, o.out, 1, o.stride));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor active = torch::relu(norms[0].forward(x));
    const at::Tensor y = conv2(dropout(torch::relu(norms[1].forward(conv1(active)))));
    return y + (shortcut ? shortcut(active) : x);
  }
  std::array<torch::nn::AnyModule, 2> norms;
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr}, shortcut{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(WideBlock);

Model build_wide_resnet(const SpecValues& values) {
  constexpr std::int64_t kStem = 16;
  const std::int64_t in = values.integer("in"), size = values.integer("size"), depth = values.integer("depth");
  const std::string norm = norm_of(values, false);
  if (depth % 6 != 4) throw_failure(Kind::usage, "wide_resnet: depth={} is not 6 n + 4; say 16, 22, 28 or 40", depth);
  const auto root = std::make_shared<torch::nn::Module>("wide_resnet");
  Model model(root, {.sizes = {in, size, size}});
  auto conv1 = own(*root, "conv1", wide_conv(in, kStem, 3, 1));
  auto bn1 = make_norm(norm, kStem);
  root->register_module("bn1", bn1.ptr());
  model.add({"stem", {conv1.ptr(), bn1.ptr()}, [conv1, bn1](const at::Tensor& x) mutable { return torch::relu(bn1.forward(conv1(x))); }});
  WideBlockImpl::Options next{.in = kStem, .out = 0, .stride = 1, .dropout = values.real("dropout"), .norm = norm};
  for (int stage = 0; stage < 3; ++stage) {
    const std::string name = fmt::format("layer{}", stage + 1);
    auto list = own(*root, name, torch::nn::ModuleList());
    next.out = (kStem << stage) * values.integer("width");
    next.stride = stage == 0 ? 1 : 2;
    for (std::int64_t i = 0; i < (depth - 4) / 6; ++i) {
      WideBlock block(next);
      list->push_back(block);
      model.add({fmt::format("{}.{}", name, i), {block.ptr()}, [block](const at::Tensor& x) mutable { return block(x); }});
      next.in = next.out;
      next.stride = 1;
    }
  }
  auto bn = make_norm(norm, next.in);
  root->register_module("bn", bn.ptr());
  auto fc = own(*root, "fc", torch::nn::Linear(next.in, values.integer("classes")));
  model.add({"head", {bn.ptr(), fc.ptr()}, [bn, fc](const at::Tensor& x) mutable {
               return fc(torch::adaptive_avg_pool2d(torch::relu(bn.forward(x)), {1, 1}).flatten(1));
             }});
  return model;
}

void init_wide_resnet(torch::nn::Module& root, const SpecValues&, const ParameterRng& rng) { init_he(root, rng); }

}  // namespace

extern const Architecture row_wide_resnet{.name = "wide_resnet",
                                          .about = "wide residual network, pre-activation",
                                          .params = wide_resnet_params,
                                          .build = build_wide_resnet,
                                          .init = init_wide_resnet,
                                          .takes = Takes::image};

}  // namespace cohort::nn
