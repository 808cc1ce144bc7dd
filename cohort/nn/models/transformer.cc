// A transformer encoder that classifies sequences (Vaswani et al. 2017, arXiv:1706.03762; pre-norm): every token sees every other one, the
// mean over the positions goes to the classes. [n, t] of ids -> [n, classes].
#include "cohort/nn/models/layers.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

std::vector<SpecParam> transformer_params() {
  return {whole("classes", "classes", 2),
          whole("vocab", "tokens there are", 256),
          whole("context", "longest sequence", 128),
          whole("d", "model width", 128),
          whole("heads", "attention heads; d is a multiple", 4),
          whole("layers", "blocks", 2),
          share("dropout", "in every block and after the embedding", 0)};
}

Model build_transformer(const SpecValues& values) {
  const std::int64_t d = values.integer("d");
  const double dropout = values.real("dropout");
  const auto root = std::make_shared<torch::nn::Module>("transformer");
  Model model(root, {.sizes = {values.integer("context")}, .vocabulary = values.integer("vocab")});
  model.add(embedding_block(*root, values.integer("vocab"), values.integer("context"), d, dropout));
  add_transformer_blocks(model, *root, values.integer("layers"),
                         {.d = d, .heads = values.integer("heads"), .causal = false, .dropout = dropout});
  auto norm = own(*root, "ln_f", torch::nn::LayerNorm(torch::nn::LayerNormOptions({d})));
  auto head = own(*root, "head", torch::nn::Linear(d, values.integer("classes")));
  model.add({"head", {norm.ptr(), head.ptr()}, [norm, head](const at::Tensor& x) mutable { return head(norm(x).mean(1)); }});
  return model;
}

void init_transformer(torch::nn::Module& root, const SpecValues& values, const ParameterRng& rng) {
  init_gpt2(root, rng, values.integer("layers"));
}

}  // namespace

extern const Architecture row_transformer{.name = "transformer",
                                          .about = "encoder that classifies sequences",
                                          .params = transformer_params,
                                          .build = build_transformer,
                                          .init = init_transformer,
                                          .takes = Takes::tokens};

}  // namespace cohort::nn
