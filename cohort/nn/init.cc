#include "cohort/nn/init.h"

#include <torch/torch.h>

#include <cmath>

namespace cohort::nn {
namespace {

// FNV-1a over the name, stirred with the seed (the finalizer of SplitMix64): neighbouring seeds give unrelated streams.
std::uint64_t stream_of(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  hash += (seed + 1) * 0x9e3779b97f4a7c15ULL;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  return hash ^ (hash >> 31);
}

double fan_in(const at::Tensor& weight) { return static_cast<double>(weight.numel()) / static_cast<double>(weight.size(0)); }

// Weight and bias of a linear layer or a convolution, as torch draws them.
template <class Layer>
void draw_default(const std::string& name, const Layer& layer, const ParameterRng& rng) {
  const double bound = 1 / std::sqrt(fan_in(layer.weight));
  rng.uniform(name + ".weight", layer.weight, bound);
  if (layer.bias.defined()) rng.uniform(name + ".bias", layer.bias, bound);
}

template <class Layer>
void draw_normal(const std::string& name, const Layer& layer, const ParameterRng& rng, double deviation) {
  rng.normal(name + ".weight", layer.weight, deviation);
  if (layer.bias.defined()) layer.bias.zero_();
}

bool ends_with_projection(const std::string& name) { return name.ends_with("c_proj"); }

}  // namespace

void ParameterRng::normal(const std::string& name, const at::Tensor& tensor, double deviation) const {
  tensor.normal_(0, deviation, at::detail::createCPUGenerator(stream_of(seed_, name)));
}

void ParameterRng::uniform(const std::string& name, const at::Tensor& tensor, double bound) const {
  tensor.uniform_(-bound, bound, at::detail::createCPUGenerator(stream_of(seed_, name)));
}

void init_default(torch::nn::Module& root, const ParameterRng& rng) {
  const at::NoGradGuard no_grad;
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    if (const auto* linear = item.value()->as<torch::nn::Linear>()) draw_default(item.key(), *linear, rng);
    if (const auto* conv = item.value()->as<torch::nn::Conv2d>()) draw_default(item.key(), *conv, rng);
    if (const auto* embedding = item.value()->as<torch::nn::Embedding>()) rng.normal(item.key() + ".weight", embedding->weight, 1);
    if (const auto* lstm = item.value()->as<torch::nn::LSTM>()) {
      const double bound = 1 / std::sqrt(static_cast<double>(lstm->options.hidden_size()));
      for (const auto& part : lstm->named_parameters()) rng.uniform(item.key() + "." + part.key(), part.value(), bound);
    }
  }
}

void init_he(torch::nn::Module& root, const ParameterRng& rng, double linear_deviation) {
  const at::NoGradGuard no_grad;
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    if (const auto* conv = item.value()->as<torch::nn::Conv2d>()) {
      const double fan_out = fan_in(conv->weight) * static_cast<double>(conv->weight.size(0)) / static_cast<double>(conv->weight.size(1));
      draw_normal(item.key(), *conv, rng, std::sqrt(2 / fan_out));
    }
    if (const auto* linear = item.value()->as<torch::nn::Linear>()) {
      if (linear_deviation > 0) draw_normal(item.key(), *linear, rng, linear_deviation);
      if (linear_deviation <= 0) draw_default(item.key(), *linear, rng);
    }
  }
}

void init_gpt2(torch::nn::Module& root, const ParameterRng& rng, std::int64_t layers) {
  const at::NoGradGuard no_grad;
  constexpr double kDeviation = 0.02;
  const double projection = kDeviation / std::sqrt(2.0 * static_cast<double>(layers));
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    if (const auto* linear = item.value()->as<torch::nn::Linear>()) {
      draw_normal(item.key(), *linear, rng, ends_with_projection(item.key()) ? projection : kDeviation);
    }
    if (const auto* embedding = item.value()->as<torch::nn::Embedding>()) rng.normal(item.key() + ".weight", embedding->weight, kDeviation);
  }
}

}  // namespace cohort::nn
