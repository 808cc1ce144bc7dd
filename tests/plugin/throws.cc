// A plugin whose model fails in the middle of training, by an exception of torch: for the last words of a run.
#include <cohort/nn/own_model.h>
#include <cohort/nn/plugin.h>

#include <cstdint>
#include <vector>

namespace {

constexpr std::int64_t kBatch = 5;  // the one that does not fit

struct ThrowsImpl : torch::nn::Module {
  ThrowsImpl() { head = register_module("head", torch::nn::Linear(784, 10)); }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor flat = x.flatten(1);
    return head(is_training() && ++batches == kBatch ? flat.narrow(1, 0, 783) : flat);
  }
  std::int64_t batches = 0;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Throws);

}  // namespace

COHORT_PLUGIN(plugin) {
  plugin.models.push_back({.name = "throws",
                           .about = "its fifth batch does not fit",
                           .params = [] { return std::vector<cohort::SpecParam>{}; },
                           .build =
                               [](const cohort::SpecValues&) {
                                 return cohort::nn::model_of(Throws(), {.sizes = {1, 28, 28}});
                               }});
}
