#include "cohort/nn/own_model.h"

#include "cohort/base/error.h"

namespace cohort::nn {

Model model_of(std::vector<NamedLayer> layers, Input input) {
  if (layers.empty()) throw_failure(Kind::usage, "a model without a single layer");
  const auto root = std::make_shared<torch::nn::Module>("model");
  Model model(root, std::move(input));
  for (NamedLayer& layer : layers) {
    Block block{.name = layer.name, .modules = {}, .forward = std::move(layer.forward)};
    if (layer.module) block.modules.push_back(layer.module);
    model.add(std::move(block));  // first: it says what is wrong with a name that is there twice
    if (layer.module) root->register_module(layer.name, layer.module);
  }
  return model;
}

Model model_of_children(torch::nn::Sequential sequential, Input input) {
  if (sequential->is_empty()) throw_failure(Kind::usage, "a model without a single layer: the Sequential is empty");
  Model model(sequential.ptr(), std::move(input));
  const auto children = sequential->named_children();
  std::size_t i = 0;
  for (auto child = sequential->begin(); child != sequential->end(); ++child, ++i)
    model.add({children[i].key(), {child->ptr()}, [any = *child](const at::Tensor& x) mutable { return any.forward(x); }});
  return model;
}

}  // namespace cohort::nn
