#include "cohort/nn/models/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/nn/ghost_batch_norm.h"
#include "cohort/nn/ops/linear.h"
#include "cohort/nn/sync_batch_norm.h"

namespace cohort::nn {

SpecParam whole(std::string name, std::string doc, std::int64_t preset, std::int64_t low) {
  constexpr double kMost = 1 << 24;
  return {.name = std::move(name),
          .type = SpecParam::Type::integer,
          .doc = std::move(doc),
          .preset = std::to_string(preset),
          .low = static_cast<double>(low),
          .high = kMost};
}

SpecParam share(std::string name, std::string doc, double preset) {
  return {.name = std::move(name),
          .type = SpecParam::Type::real,
          .doc = std::move(doc),
          .preset = fmt::format("{}", preset),
          .low = 0,
          .high = 0.999};
}

namespace {

constexpr std::int64_t kNormGroups = 32;  // Wu and He 2018, arXiv:1803.08494
constexpr std::int64_t kNormGhost = 32;   // samples

std::vector<std::string_view> norm_names(bool none) {
  std::vector<std::string_view> all{"batch", "group", "layer", "instance", "ghost"};
  if (none) all.insert(all.begin(), "none");
  return all;
}

// The number of `group(groups=8)` or `ghost(size=16)`.
std::int64_t norm_number(const Spec& spec, std::string_view key, std::int64_t preset) {
  const Spec::Param* const given = spec.find(key);
  const std::int64_t number = given == nullptr ? preset : parse_int(given->value);
  if (number < 1) throw_failure(Kind::usage, "norm={}: {} is 1 or more", spec.to_string(), key);
  return number;
}

}  // namespace

SpecParam norm_param(bool none) {
  return {.name = "norm",
          .type = SpecParam::Type::spec,
          .doc = fmt::format("normalisation after each convolution: {}batch, group(groups={}), layer, instance, ghost(size={})",
                             none ? "none, " : "", kNormGroups, kNormGhost),
          .preset = none ? "none" : "batch"};
}

std::string norm_of(const SpecValues& values, bool none) {
  const Spec spec = values.spec("norm");
  const auto known = norm_names(none);
  if (std::ranges::find(known, spec.name) == known.end()) throw_unknown("norm", spec.name, known);
  for (const auto& p : spec.params)
    if (!(spec.name == "group" && p.key == "groups") && !(spec.name == "ghost" && p.key == "size"))
      throw_failure(Kind::usage, "norm={}: there is no '{}' here; group has groups, ghost has size", spec.to_string(), p.key);
  norm_number(spec, spec.name == "group" ? "groups" : "size", 1);
  return spec.to_string();
}

torch::nn::AnyModule make_norm(const std::string& norm, std::int64_t channels) {
  using torch::nn::AnyModule, torch::nn::GroupNorm;
  const Spec spec = Spec::parse(norm);
  if (spec.name == "batch") return AnyModule(SyncBatchNorm(channels));
  if (spec.name == "group") return AnyModule(GroupNorm(std::gcd(norm_number(spec, "groups", kNormGroups), channels), channels));
  if (spec.name == "layer") return AnyModule(GroupNorm(1, channels));
  if (spec.name == "instance") return AnyModule(GroupNorm(channels, channels));
  if (spec.name == "ghost") return AnyModule(GhostBatchNorm(channels, norm_number(spec, "size", kNormGhost)));
  return {};
}

Block slice(std::string name, const torch::nn::Sequential& sequence, std::size_t first, std::size_t last) {
  Block block{.name = std::move(name), .modules = {}, .forward = nullptr};
  for (std::size_t i = first; i < last; ++i) block.modules.push_back(sequence->ptr(i));
  block.forward = [sequence = torch::nn::Sequential(sequence), first, last](const at::Tensor& x) mutable {
    at::Tensor y = x;
    for (std::size_t i = first; i < last; ++i) y = (sequence->begin() + static_cast<std::ptrdiff_t>(i))->forward(y);
    return y;
  };
  return block;
}

AttentionImpl::AttentionImpl(const TransformerOptions& given) : options(given) {
  if (given.d % given.heads != 0)
    throw_failure(Kind::usage, "transformer: d={} cannot be split into heads={}; make d a multiple", given.d, given.heads);
  c_attn = register_module("c_attn", torch::nn::Linear(given.d, 3 * given.d));
  c_proj = register_module("c_proj", torch::nn::Linear(given.d, given.d));
  dropout = register_module("dropout", torch::nn::Dropout(given.dropout));
}

at::Tensor AttentionImpl::forward(const at::Tensor& x) {
  const std::int64_t n = x.size(0), t = x.size(1), d = options.d;
  const auto parts = linear(*c_attn, x)
                         .view({n, t, 3, options.heads, d / options.heads})
                         .permute({2, 0, 3, 1, 4})
                         .unbind(0);  // each [n, heads, t, d / heads]
  const at::Tensor mixed =
      at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, is_training() ? options.dropout : 0.0, options.causal);
  return dropout(linear(*c_proj, mixed.transpose(1, 2).reshape({n, t, d})));
}

MlpImpl::MlpImpl(const TransformerOptions& given) {
  c_fc = register_module("c_fc", torch::nn::Linear(given.d, 4 * given.d));
  c_proj = register_module("c_proj", torch::nn::Linear(4 * given.d, given.d));
  dropout = register_module("dropout", torch::nn::Dropout(given.dropout));
}

at::Tensor MlpImpl::forward(const at::Tensor& x) { return dropout(linear(*c_proj, at::gelu(linear(*c_fc, x), "tanh"))); }

TransformerBlockImpl::TransformerBlockImpl(const TransformerOptions& given) {
  ln_1 = register_module("ln_1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({given.d})));
  attn = register_module("attn", Attention(given));
  ln_2 = register_module("ln_2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({given.d})));
  mlp = register_module("mlp", Mlp(given));
}

at::Tensor TransformerBlockImpl::forward(const at::Tensor& x) {
  const at::Tensor middle = x + attn(ln_1(x));
  return middle + mlp(ln_2(middle));
}

Block embedding_block(torch::nn::Module& owner, std::int64_t vocabulary, std::int64_t context, std::int64_t d, double dropout) {
  auto wte = own(owner, "wte", torch::nn::Embedding(vocabulary, d));
  auto wpe = own(owner, "wpe", torch::nn::Embedding(context, d));
  auto drop = own(owner, "drop", torch::nn::Dropout(dropout));
  return {"embed", {wte.ptr(), wpe.ptr(), drop.ptr()}, [wte, wpe, drop, context](const at::Tensor& ids) mutable {
            const std::int64_t t = ids.size(1);
            if (t > context)
              throw_failure(Kind::usage, "{} tokens do not fit a context of {}; cut the sequences or build with context={}", t, context, t);
            return drop(wte(ids) + wpe->weight.slice(0, 0, t));
          }};
}

void add_transformer_blocks(Model& model, torch::nn::Module& owner, std::int64_t layers, const TransformerOptions& options) {
  auto list = own(owner, "h", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < layers; ++i) {
    TransformerBlock block(options);
    list->push_back(block);
    model.add({fmt::format("h.{}", i), {block.ptr()}, [block](const at::Tensor& x) mutable { return block(x); }});
  }
}

}  // namespace cohort::nn
