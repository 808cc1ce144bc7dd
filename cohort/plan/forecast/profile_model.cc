#include "cohort/plan/forecast/profile_model.h"

#include <torch/torch.h>

#include <algorithm>

#include "cohort/nn/autocast.h"
#include "cohort/nn/build.h"
#include "cohort/nn/loss.h"
#include "cohort/plan/forecast/fake_tensor.h"
#include "cohort/plan/recompute_choice.h"

namespace cohort::plan::forecast {
namespace {

// Keeps its input, and computes again, in the same precision.
struct Again : torch::autograd::Function<Again> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const nn::Block* block,
                            std::int64_t precision) {
    context->save_for_backward({x});
    context->saved_data["precision"] = precision;
    context->saved_data["block"] = reinterpret_cast<std::int64_t>(block);  // the model outlives its graph
    return block->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list given) {
    const auto* block = reinterpret_cast<const nn::Block*>(context->saved_data["block"].toInt());  // NOLINT(performance-no-int-to-ptr)
    const at::AutoGradMode recording(true);
    at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    at::Tensor y;
    {
      const autocast autocast_guard(static_cast<Precision>(context->saved_data["precision"].toInt()));
      y = block->forward(x);
    }
    torch::autograd::backward({y}, {given[0]});
    return {x.grad(), at::Tensor(), at::Tensor()};
  }
};

struct Arrival final : torch::autograd::PostAccumulateGradHook {
  Arrival(const KernelTimings& k, const double& b, double& s) : kernels(k), began(b), seconds(s) {}
  void operator()(const at::Tensor&) override { seconds = kernels.clock() - began; }
  const KernelTimings& kernels;
  const double& began;
  double& seconds;
};

std::vector<plan::ParameterProfile> parameters_of(const nn::Model& model) {
  std::vector<plan::ParameterProfile> all;
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

at::Tensor batch_of(const MicroBatch& micro_batch) {
  std::vector<std::int64_t> sizes{micro_batch.batch};
  sizes.insert(sizes.end(), micro_batch.sample.begin(), micro_batch.sample.end());
  return micro_batch.tokens ? fake_tensor(sizes, at::kLong) : fake_tensor(sizes, at::kFloat);
}

at::Tensor labels_of(const MicroBatch& micro_batch) {  // real ones: the loss counts them
  if (micro_batch.targets > 0) return at::zeros({micro_batch.batch, micro_batch.targets}, at::kFloat);
  if (micro_batch.next_tokens) return at::zeros({micro_batch.batch, micro_batch.sample.at(0)}, at::kLong);
  return at::zeros({micro_batch.batch}, at::kLong);
}

// Which blocks are recomputed, by number; empty: none.
std::vector<bool> chosen(const std::string& model_spec, const MicroBatch& micro_batch, const std::string& recompute,
                         KernelTimings& kernels) {
  const auto choice = RecomputeChoice::parse(recompute);
  if (choice.how == RecomputeChoice::How::none) return {};
  std::vector<BlockBytes> bytes;
  for (const auto& block : profile_model(model_spec, micro_batch, "none", kernels).blocks)
    bytes.push_back({block.name, block.kept, block.output});
  return choose(choice, bytes);
}

}  // namespace

nn::Input input_of(const std::string& model_spec, KernelTimings& kernels) {
  const FakeTensorMode here(kernels);
  kernels.clocked(false);
  return nn::build_model(model_spec).input();
}

plan::ModelProfile profile_model(const std::string& model_spec, const MicroBatch& micro_batch, const std::string& recompute,
                                 KernelTimings& kernels) {
  plan::ModelProfile result;
  result.recompute = recompute;
  const at::Tensor labels = labels_of(micro_batch);
  const auto again = chosen(model_spec, micro_batch, recompute, kernels);
  FakeTensorMode here(kernels);
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
    named[i].second.mutable_grad() = fake_tensor(named[i].second.sizes(), named[i].second.scalar_type());
    torch::autograd::impl::set_post_acc_grad_hooks(named[i].second,
                                                   std::make_unique<Arrival>(kernels, began, result.parameters[i].arrives));
  }
  std::size_t number = 0;
  model.wrap_blocks([&](const nn::Block& block, const at::Tensor& x) {
    const std::size_t b = number++;
    const double start = kernels.clock();
    const std::size_t lived = here.live_bytes().now;
    const bool twice = !again.empty() && again[b] && x.requires_grad();
    at::Tensor y = twice ? Again::apply(x, &block, static_cast<std::int64_t>(micro_batch.precision)) : block.forward(x);
    result.blocks[b].forward = kernels.clock() - start;
    result.blocks[b].kept = here.live_bytes().now - std::min(lived, here.live_bytes().now);
    result.blocks[b].output = static_cast<std::size_t>(y.numel()) * y.element_size();
    return y;
  });
  at::Tensor input = batch_of(micro_batch);
  kernels.clocked(true);
  kernels.restart();
  here.restart();
  at::Tensor logits;
  {
    const autocast autocast_guard(micro_batch.precision);  // ends with forward: backward follows the types by itself
    logits = model.forward(input);
  }
  if (micro_batch.precision != Precision::fp32) logits = logits.to(at::kFloat);
  const nn::ConfiguredLoss loss_of(micro_batch.loss, micro_batch.targets > 0);
  at::Tensor loss = loss_of(logits, labels, {.label_smoothing = micro_batch.label_smoothing}).value;
  logits.reset();
  loss = loss / static_cast<double>(micro_batch.batch);
  result.forward = began = kernels.clock();
  result.kept = here.live_bytes().now;
  loss.backward();
  result.backward = kernels.clock() - began;
  result.peak = here.live_bytes().peak;
  result.flops = kernels.total_flops();
  result.kernels = kernels.distinct();
  for (const auto& [name, p] : named) torch::autograd::impl::set_post_acc_grad_hooks(p, nullptr);
  return result;
}

}  // namespace cohort::plan::forecast
