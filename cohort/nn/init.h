// First values of parameters. A parameter's bits depend on the seed, its name and its size, and on nothing else: not on the order of
// construction, other threads, or torch's global generator. A rank that owns one block can draw that block alone.
//   torch's default   weight, bias ~ U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for linear and convolution; embeddings N(0, 1);
//                     recurrent U(+-1/sqrt(hidden))
//   He (torchvision)  convolution ~ N(0, 2 / fan_out), bias 0 (He et al. 2015, arXiv:1502.01852)
//   GPT-2             linear, embedding ~ N(0, 0.02^2), bias 0, residual projections by 1/sqrt(2 layers) smaller
// Norms start as the identity in all of them. Threads: any, one module each. To add a rule: one function here.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace torch::nn {
class Module;
}

namespace cohort::nn {

class ParameterRng {
 public:
  explicit ParameterRng(std::uint64_t seed) : seed_(seed) {}
  void normal(const std::string& name, const at::Tensor& tensor, double deviation) const;
  void uniform(const std::string& name, const at::Tensor& tensor, double bound) const;

 private:
  std::uint64_t seed_;
};

void init_default(torch::nn::Module& root, const ParameterRng& rng);
// Convolutions by He's rule. linear_deviation > 0: linear layers normal with it and bias 0 (VGG: 0.01), else torch's default (ResNet).
void init_he(torch::nn::Module& root, const ParameterRng& rng, double linear_deviation = 0);
// Linear layers named c_proj are the projections back into the residual stream; there are 2 * layers of them.
void init_gpt2(torch::nn::Module& root, const ParameterRng& rng, std::int64_t layers);

}  // namespace cohort::nn
