// A recurrent language model: embedding, a stack of LSTM layers (one block each), and the logits of the next token at every position.
// [n, t] of ids -> [n, t, vocab], or with predict=last [n, vocab]: of what comes after the last token. State starts at zero for every
// batch.
#include <fmt/format.h>

#include "cohort/nn/models/layers.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

std::vector<SpecParam> lstm_params() {
  return {whole("vocab", "tokens there are", 256),
          whole("embed", "width of the embedding", 128),
          whole("hidden", "width of a layer", 256),
          whole("layers", "LSTM layers", 2),
          whole("context", "tokens of an example", 128),
          share("dropout", "after the embedding and every layer", 0),
          {.name = "predict",
           .type = SpecParam::Type::word,
           .doc = "every: the next token at each position; last: behind the last one, for ngrams",
           .preset = "every",
           .words = {"every", "last"}}};
}

Model build_lstm(const SpecValues& values) {
  const std::int64_t vocabulary = values.integer("vocab");
  const double dropout = values.real("dropout");
  const auto root = std::make_shared<torch::nn::Module>("lstm");
  Model model(root, {.sizes = {values.integer("context")}, .vocabulary = vocabulary});
  auto drop = own(*root, "drop", torch::nn::Dropout(dropout));
  auto embed = own(*root, "embed", torch::nn::Embedding(vocabulary, values.integer("embed")));
  model.add({"embed", {embed.ptr(), drop.ptr()}, [embed, drop](const at::Tensor& ids) mutable { return drop(embed(ids)); }});
  std::int64_t in = values.integer("embed");
  for (std::int64_t i = 0; i < values.integer("layers"); ++i) {
    const std::string name = fmt::format("lstm{}", i + 1);
    auto layer = own(*root, name, torch::nn::LSTM(torch::nn::LSTMOptions(in, values.integer("hidden")).batch_first(true)));
    model.add({name, {layer.ptr(), drop.ptr()}, [layer, drop](const at::Tensor& x) mutable { return drop(std::get<0>(layer(x))); }});
    in = values.integer("hidden");
  }
  auto head = own(*root, "head", torch::nn::Linear(in, vocabulary));
  const bool last = values.word("predict") == "last";
  model.add({"head", {head.ptr()}, [head, last](const at::Tensor& x) mutable { return head(last ? x.select(1, -1) : x); }});
  return model;
}

void init_lstm(torch::nn::Module& root, const SpecValues&, const ParameterRng& rng) { init_default(root, rng); }

}  // namespace

extern const Architecture row_lstm{.name = "lstm",
                                   .about = "recurrent language model",
                                   .params = lstm_params,
                                   .build = build_lstm,
                                   .init = init_lstm,
                                   .takes = Takes::tokens};

}  // namespace cohort::nn
