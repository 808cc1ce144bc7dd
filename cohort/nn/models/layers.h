// What several models are built from: norms by name, runs of a Sequential as blocks, the transformer block.
// Owner: the model that builds them. Threads: one. Failure: Kind::usage for parameters that do not fit together.
#pragma once
#include <torch/torch.h>

#include <string>

#include "cohort/base/spec.h"
#include "cohort/nn/blocks.h"

namespace cohort::nn {

// Parameters that many models share, so that they read alike.
SpecParam whole(std::string name, std::string doc, std::int64_t preset, std::int64_t low = 1);
SpecParam share(std::string name, std::string doc, double preset);  // a probability, 1 excluded
// "norm": none (only where a model does without), batch, group(groups=32), layer, instance, ghost(size=32).
SpecParam norm_param(bool none);
std::string norm_of(const SpecValues& values, bool none);  // checked; Kind::usage with those that there are

// Registers the module with its owner and hands it back to be called.
template <class Holder>
Holder own(torch::nn::Module& owner, const std::string& name, Holder module) {
  owner.register_module(name, module.ptr());
  return module;
}

// batch: SyncBatchNorm (torch's batch norm until it has a communicator); group: at most so many groups as divide the channels; layer and
// instance: one group, and one for each channel; ghost: batch norm of so many samples at a time; none: nothing, an empty AnyModule.
torch::nn::AnyModule make_norm(const std::string& norm, std::int64_t channels);

// Modules first .. last - 1 of a Sequential that the root owns, as one block. Looks them up at each call, so that a replaced module counts.
Block slice(std::string name, const torch::nn::Sequential& sequence, std::size_t first, std::size_t last);

// x + attn(ln_1(x)), then x + mlp(ln_2(x)): pre-norm, GPT-2's layout and names. [n, t, d] -> [n, t, d].
struct TransformerOptions {
  std::int64_t d = 0, heads = 0;
  bool causal = true;
  double dropout = 0;
};

struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const TransformerOptions& given);
  at::Tensor forward(const at::Tensor& x);
  TransformerOptions options;
  torch::nn::Linear c_attn{nullptr}, c_proj{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Attention);

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(const TransformerOptions& given);
  at::Tensor forward(const at::Tensor& x);
  torch::nn::Linear c_fc{nullptr}, c_proj{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Mlp);

struct TransformerBlockImpl : torch::nn::Module {
  explicit TransformerBlockImpl(const TransformerOptions& given);
  at::Tensor forward(const at::Tensor& x);
  torch::nn::LayerNorm ln_1{nullptr}, ln_2{nullptr};
  Attention attn{nullptr};
  Mlp mlp{nullptr};
};
TORCH_MODULE(TransformerBlock);

// Token and learned position embeddings, [n, t] of ids -> [n, t, d]; refuses t beyond the context. Its modules are `owner`'s wte and wpe.
Block embedding_block(torch::nn::Module& owner, std::int64_t vocabulary, std::int64_t context, std::int64_t d, double dropout);
// Blocks h.0 .. h.{layers - 1}, owned by `owner` in a list h.
void add_transformer_blocks(Model& model, torch::nn::Module& owner, std::int64_t layers, const TransformerOptions& options);

}  // namespace cohort::nn
