// VGG-16, configuration D of Simonyan and Zisserman 2014 (arXiv:1409.1556), with torchvision's layout and parameter names.
#include <fmt/format.h>

#include <array>

#include "cohort/nn/models/layers.h"
#include "cohort/nn/ops/relu_pool.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

struct Stage {
  std::int64_t channels;
  int convolutions;
};
constexpr std::array<Stage, 5> kStages{{{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}}};

std::vector<SpecParam> vgg16_params() {
  return {whole("in", "channels of the image", 3), whole("classes", "classes", 1000),
          whole("size", "height and width of the image", 224, 32), norm_param(/*none=*/true),
          share("dropout", "after the first two linear layers", 0.5)};
}

void add_stages(Model& model, torch::nn::Sequential& features, std::int64_t in, const std::string& norm) {
  for (std::size_t s = 0; s < kStages.size(); ++s) {
    for (int c = 0; c < kStages[s].convolutions; ++c) {
      const std::size_t first = features->size();
      features->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, kStages[s].channels, 3).padding(1)));
      if (auto made = make_norm(norm, kStages[s].channels); !made.is_empty()) features->push_back(made);
      const bool pools = c + 1 == kStages[s].convolutions;
      if (pools) features->push_back(torch::nn::Identity());  // the ReLU's place, for the numbers in the names of what follows
      pools ? features->push_back(ReluPool()) : features->push_back(torch::nn::ReLU());
      model.add(slice(fmt::format("conv{}_{}", s + 1, c + 1), features, first, features->size()));
      in = kStages[s].channels;
    }
  }
}

Model build_vgg16(const SpecValues& values) {
  constexpr std::int64_t kSide = 7;  // of the averaged feature map, whatever the size of the image
  const std::int64_t size = values.integer("size");
  const auto root = std::make_shared<torch::nn::Module>("vgg16");
  Model model(root, {.sizes = {values.integer("in"), size, size}});
  auto features = own(*root, "features", torch::nn::Sequential());
  add_stages(model, features, values.integer("in"), norm_of(values, true));
  using torch::nn::Linear, torch::nn::ReLU, torch::nn::Dropout;
  const double dropout = values.real("dropout");
  auto classifier = own(*root, "classifier",
                        torch::nn::Sequential(Linear(512 * kSide * kSide, 4096), ReLU(), Dropout(dropout), Linear(4096, 4096), ReLU(),
                                              Dropout(dropout), Linear(4096, values.integer("classes"))));
  model.add({"average", {}, [](const at::Tensor& x) { return torch::adaptive_avg_pool2d(x, {kSide, kSide}).flatten(1); }});
  model.add(slice("fc6", classifier, 0, 3));
  model.add(slice("fc7", classifier, 3, 6));
  model.add(slice("fc8", classifier, 6, 7));
  return model;
}

void init_vgg16(torch::nn::Module& root, const SpecValues&, const ParameterRng& rng) { init_he(root, rng, /*linear_deviation=*/0.01); }

}  // namespace

extern const Architecture row_vgg16{.name = "vgg16",
                                    .about = "VGG-16, configuration D",
                                    .params = vgg16_params,
                                    .build = build_vgg16,
                                    .init = init_vgg16,
                                    .takes = Takes::image};

}  // namespace cohort::nn
