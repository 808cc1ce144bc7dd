// A model, a data set and a loss of one's own: stripes, across or down, and a small network that tells them apart.
#pragma once
#include <cohort/nn/loss.h>
#include <cohort/nn/own_dataset.h>
#include <cohort/nn/own_model.h>

#include <cstdint>
#include <memory>
#include <utility>

struct StripesNetImpl : torch::nn::Module {
  explicit StripesNetImpl(std::int64_t depth) {
    std::int64_t in = 144;
    for (std::int64_t i = 0; i < depth; ++i, in = 32) hidden->push_back(torch::nn::Linear(in, 32));
    register_module("hidden", hidden);
    head = register_module("head", torch::nn::Linear(in, 2));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = x.flatten(1);
    for (const auto& layer : *hidden) x = torch::relu(layer->as<torch::nn::Linear>()->forward(x));
    return head(x);
  }
  torch::nn::ModuleList hidden;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(StripesNet);

// Any type with size() and get(index) is a data set. This one is made up as it is read; yours reads files.
struct Stripes {
  std::int64_t samples = 400, seed = 1;

  std::size_t size() const { return static_cast<std::size_t>(samples); }
  std::pair<torch::Tensor, std::int64_t> get(std::size_t index) const {
    const auto label = static_cast<std::int64_t>(index % 2);
    auto rng = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed) * 1000003 + index);
    auto picture = torch::randint(128, {12, 12}, rng) + torch::arange(12).remainder(4).ge(2).reshape({12, 1}) * 127;
    return {(label == 0 ? picture : picture.t()).reshape({1, 12, 12}).to(torch::kByte), label};
  }
};

inline cohort::nn::Model stripes_net(std::int64_t depth) { return cohort::nn::model_of(StripesNet(depth), {.sizes = {1, 12, 12}}); }
inline std::shared_ptr<const cohort::data::Dataset> stripes(const Stripes& set) {
  return cohort::nn::dataset_of(set, {.name = "stripes", .classes = 2, .names = {"across", "down"}});
}

// A sum over the samples, and how many there were: so ranks with batches of different sizes average rightly.
inline cohort::nn::Loss hinge(const at::Tensor& outputs, const at::Tensor& labels) {
  const at::Tensor sign = labels * 2 - 1;
  return {torch::relu(1 - sign * (outputs.select(1, 1) - outputs.select(1, 0))).sum(), labels.numel()};
}
