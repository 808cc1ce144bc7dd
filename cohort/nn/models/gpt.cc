// A decoder language model with the layout and parameter names of GPT-2 (Radford et al. 2019): pre-norm blocks, learned positions, causal
// attention, and the output layer tied to the token embedding. [n, t] of ids -> [n, t, vocab].
// gpt(vocab=50257, context=1024, d=768, heads=12, layers=12) is GPT-2 small, 124,439,808 parameters.
#include "cohort/nn/models/layers.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

std::vector<SpecParam> gpt_params() {
  return {whole("vocab", "tokens there are", 256),
          whole("context", "longest sequence", 128),
          whole("d", "model width", 128),
          whole("heads", "attention heads; d is a multiple", 4),
          whole("layers", "blocks", 4),
          {.name = "tied", .type = SpecParam::Type::boolean, .doc = "the output layer is the token embedding", .preset = "true"},
          share("dropout", "in every block and after the embedding", 0)};
}

Model build_gpt(const SpecValues& values) {
  const std::int64_t d = values.integer("d");
  const double dropout = values.real("dropout");
  const auto root = std::make_shared<torch::nn::Module>("gpt");
  Model model(root, {.sizes = {values.integer("context")}, .vocabulary = values.integer("vocab")});
  model.add(embedding_block(*root, values.integer("vocab"), values.integer("context"), d, dropout));
  add_transformer_blocks(model, *root, values.integer("layers"),
                         {.d = d, .heads = values.integer("heads"), .causal = true, .dropout = dropout});
  auto norm = own(*root, "ln_f", torch::nn::LayerNorm(torch::nn::LayerNormOptions({d})));
  if (values.boolean("tied")) {
    const torch::nn::Embedding wte(std::dynamic_pointer_cast<torch::nn::EmbeddingImpl>(root->named_children()["wte"]));
    model.add({"head", {norm.ptr(), wte.ptr()}, [norm, wte](const at::Tensor& x) mutable { return torch::linear(norm(x), wte->weight); }});
    return model;
  }
  auto head = own(*root, "lm_head", torch::nn::Linear(torch::nn::LinearOptions(d, values.integer("vocab")).bias(false)));
  model.add({"head", {norm.ptr(), head.ptr()}, [norm, head](const at::Tensor& x) mutable { return head(norm(x)); }});
  return model;
}

void init_gpt(torch::nn::Module& root, const SpecValues& values, const ParameterRng& rng) {
  init_gpt2(root, rng, values.integer("layers"));
}

}  // namespace

extern const Architecture row_gpt{.name = "gpt",
                                  .about = "decoder language model, GPT-2's layout",
                                  .params = gpt_params,
                                  .build = build_gpt,
                                  .init = init_gpt,
                                  .takes = Takes::tokens};

}  // namespace cohort::nn
