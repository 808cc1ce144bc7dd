#include "cohort/train/forecast/walk.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "cohort/nn/build.h"
#include "cohort/nn/loss.h"
#include "cohort/train/forecast/phantom.h"

namespace cohort::forecast {
namespace {

// Keeps its input, and computes again.
struct Again : torch::autograd::Function<Again> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const nn::Block* block) {
    context->save_for_backward({x});
    context->saved_data["block"] = reinterpret_cast<std::int64_t>(block);  // the model outlives its graph
    return block->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list given) {
    const auto* block = reinterpret_cast<const nn::Block*>(context->saved_data["block"].toInt());  // NOLINT(performance-no-int-to-ptr)
    const at::AutoGradMode recording(true);
    at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    torch::autograd::backward({block->forward(x)}, {given[0]});
    return {x.grad(), at::Tensor()};
  }
};

struct Arrival final : torch::autograd::PostAccumulateGradHook {
  Arrival(const Kernels& k, const double& b, double& s) : kernels(k), began(b), seconds(s) {}
  void operator()(const at::Tensor&) override { seconds = kernels.clock() - began; }
  const Kernels& kernels;
  const double& began;
  double& seconds;
};

std::vector<plan::WalkedParameter> parameters_of(const nn::Model& model) {
  std::vector<plan::WalkedParameter> all;
  for (const auto& [name, p] : model.named_parameters())
    all.push_back({.name = name,
                   .elements = static_cast<std::size_t>(p.numel()),
                   .bytes = static_cast<std::size_t>(p.numel()) * p.element_size(),
                   .block = model.blocks().size()});
  for (std::size_t b = model.blocks().size(); b-- > 0;)
    for (const auto& [name, p] : model.named_parameters(model.blocks()[b]))
      for (auto& known : all)
        if (known.name == name) known.block = b;
  return all;
}

at::Tensor batch_of(const Micro& micro) {
  std::vector<std::int64_t> sizes{micro.batch};
  sizes.insert(sizes.end(), micro.sample.begin(), micro.sample.end());
  return micro.tokens ? phantom(sizes, at::kLong) : phantom(sizes, at::kFloat);
}

at::Tensor labels_of(const Micro& micro) {  // real ones: the loss counts them
  if (micro.next_tokens) return at::zeros({micro.batch, micro.sample.at(0)}, at::kLong);
  return at::zeros({micro.batch}, at::kLong);
}

}  // namespace

nn::Input input_of(const std::string& model_spec, Kernels& kernels) {
  const Haunted here(kernels);
  kernels.clocked(false);
  return nn::build_model(model_spec).input();
}

plan::Walk walk(const std::string& model_spec, const Micro& micro, int every, Kernels& kernels) {
  plan::Walk result;
  result.recompute = every == 0 ? "none" : fmt::format("every({})", every);
  const at::Tensor labels = labels_of(micro);
  Haunted here(kernels);
  kernels.clocked(false);
  nn::Model model = nn::build_model(model_spec);
  model.train();
  result.parameters = parameters_of(model);
  for (const auto& block : model.blocks()) result.blocks.push_back({.name = block.name});
  for (const auto& p : result.parameters)
    if (p.block < result.blocks.size()) result.blocks[p.block].bytes += p.bytes;
  const auto named = model.named_parameters();
  double began = 0;
  for (std::size_t i = 0; i < named.size(); ++i) {
    named[i].second.mutable_grad() = phantom(named[i].second.sizes(), named[i].second.scalar_type());
    torch::autograd::impl::set_post_acc_grad_hooks(named[i].second,
                                                   std::make_unique<Arrival>(kernels, began, result.parameters[i].arrives));
  }
  std::size_t number = 0;
  model.around([&](const nn::Block& block, const at::Tensor& x) {
    const std::size_t b = number++;
    const double start = kernels.clock();
    const bool again = every > 0 && (b + 1) % static_cast<std::size_t>(every) == 0 && x.requires_grad();
    at::Tensor y = again ? Again::apply(x, &block) : block.forward(x);
    result.blocks[b].forward = kernels.clock() - start;
    return y;
  });
  at::Tensor input = batch_of(micro);
  kernels.clocked(true);
  kernels.restart();
  here.restart();
  at::Tensor loss = nn::loss_of(model.forward(input), labels, {.label_smoothing = micro.label_smoothing}).value;
  loss = loss / static_cast<double>(micro.batch);
  result.forward = began = kernels.clock();
  result.kept = here.living().now;
  loss.backward();
  result.backward = kernels.clock() - began;
  result.peak = here.living().peak;
  result.flops = kernels.total_flops();
  result.kernels = kernels.distinct();
  for (const auto& [name, p] : named) torch::autograd::impl::set_post_acc_grad_hooks(p, nullptr);
  return result;
}

}  // namespace cohort::forecast
