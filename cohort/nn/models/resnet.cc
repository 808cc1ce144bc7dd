#include "cohort/nn/models/resnet.h"

#include <fmt/format.h>

#include "cohort/nn/models/layers.h"
#include "cohort/nn/sync_batch_norm.h"

namespace cohort::nn {
namespace {

torch::nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t side, std::int64_t stride = 1) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, side).stride(stride).padding(side / 2).bias(false));
}

// One residual block: convolutions and norms in turn, ReLU between them and after the sum.
struct ResidualImpl : torch::nn::Module {
  struct Options {
    std::int64_t in, width, stride;
    bool bottleneck;
    std::string norm;
    std::int64_t out() const { return bottleneck ? 4 * width : width; }
  };

  explicit ResidualImpl(const Options& o) {
    if (o.bottleneck) {
      add(conv(o.in, o.width, 1), o.width, o.norm);
      add(conv(o.width, o.width, 3, o.stride), o.width, o.norm);
      add(conv(o.width, o.out(), 1), o.out(), o.norm);
    } else {
      add(conv(o.in, o.width, 3, o.stride), o.width, o.norm);
      add(conv(o.width, o.width, 3), o.width, o.norm);
    }
    if (o.stride == 1 && o.in == o.out()) return;
    shortcut = register_module("downsample", torch::nn::Sequential(conv(o.in, o.out(), 1, o.stride)));
    shortcut->push_back(make_norm(o.norm, o.out()));
  }

  void add(const torch::nn::Conv2d& convolution, std::int64_t channels, const std::string& norm) {
    const auto number = std::to_string(convolutions.size() + 1);
    convolutions.push_back(register_module("conv" + number, convolution));
    norms.push_back(make_norm(norm, channels));
    register_module("bn" + number, norms.back().ptr());
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = x;
    for (std::size_t i = 0; i < convolutions.size(); ++i) {
      y = norms[i].forward(convolutions[i](y));
      if (i + 1 < convolutions.size()) y = torch::relu_(y);
    }
    y += shortcut ? shortcut->forward(x) : x;
    return torch::relu_(y);
  }

  std::vector<torch::nn::Conv2d> convolutions;
  std::vector<torch::nn::AnyModule> norms;
  torch::nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Residual);

// 7x7 by 2 and a pool for large images; 3x3 for 32 x 32 ones, which have nothing to spare.
void add_stem(Model& model, std::int64_t in, const std::string& norm, bool cifar) {
  auto first = own(model.root(), "conv1", cifar ? conv(in, 64, 3) : conv(in, 64, 7, 2));
  auto normal = make_norm(norm, 64);
  model.root().register_module("bn1", normal.ptr());
  model.add({"stem", {first.ptr(), normal.ptr()}, [first, normal, cifar](const at::Tensor& x) mutable {
               at::Tensor y = normal.forward(first(x));
               torch::relu_(y);
               return cifar ? y : torch::max_pool2d(y, 3, 2, 1);
             }});
}

}  // namespace

std::vector<SpecParam> resnet_params() {
  return {whole("in", "channels of the image", 3),
          whole("classes", "classes", 1000),
          {.name = "stem",
           .type = SpecParam::Type::word,
           .doc = "imagenet: 7x7 by 2, then a pool; cifar: 3x3",
           .preset = "imagenet",
           .words = {"imagenet", "cifar"}},
          norm_param(/*none=*/false),
          {.name = "zero_gamma",
           .type = SpecParam::Type::boolean,
           .doc = "start each residual block as the identity (Goyal et al. 2017): its last norm scales by 0",
           .preset = "false"}};
}

Model build_resnet(const ResnetShape& shape, const SpecValues& values) {
  const bool cifar = values.word("stem") == "cifar";
  const std::int64_t size = cifar ? 32 : 224;
  const auto root = std::make_shared<torch::nn::Module>(shape.name);
  Model model(root, {.sizes = {values.integer("in"), size, size}});
  const std::string norm = norm_of(values, false);
  add_stem(model, values.integer("in"), norm, cifar);
  ResidualImpl::Options next{.in = 64, .width = 64, .stride = 1, .bottleneck = shape.bottleneck, .norm = norm};
  for (std::size_t layer = 0; layer < shape.repeats.size(); ++layer) {
    const std::string name = fmt::format("layer{}", layer + 1);
    auto list = own(*root, name, torch::nn::ModuleList());
    for (int i = 0; i < shape.repeats[layer]; ++i) {
      Residual block(next);
      list->push_back(block);
      model.add({fmt::format("{}.{}", name, i), {block.ptr()}, [block](const at::Tensor& x) mutable { return block(x); }});
      next.in = next.out();
      next.stride = 1;
    }
    next.width *= 2;
    next.stride = 2;
  }
  auto fc = own(*root, "fc", torch::nn::Linear(next.in, values.integer("classes")));
  model.add({"head", {fc.ptr()}, [fc](const at::Tensor& x) mutable { return fc(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1)); }});
  return model;
}

void init_resnet(torch::nn::Module& root, const SpecValues& values, const ParameterRng& rng) {
  init_he(root, rng);
  if (!values.boolean("zero_gamma")) return;
  const at::NoGradGuard no_grad;
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    const auto* block = item.value()->as<Residual>();
    if (block != nullptr) block->norms.back().ptr()->named_parameters()["weight"].zero_();
  }
}

}  // namespace cohort::nn
