// BERT (Devlin et al. 2018, arXiv:1810.04805): an encoder of post-norm blocks, under the names of Hugging Face's checkpoints.
//   embeddings   norm(word + position + type), the type 1 behind the first separator
//   layer        h <- norm(h + attention(h)),  h <- norm(h + W2 gelu(W1 h))       gelu with erf, eps 1e-12
//   classify     W tanh(P h_0)            [n, classes]       pairs and single texts, by the first token
//   tag          W h_t                    [n, t, classes]    a class for each token
//   answer       W h_t, transposed        [n, 2, t]          where in the second text the answer starts and ends
// [n, t] of ids: 0 is padding and is not attended to; the last token before it is the separator. What later blocks must know of the ids
// goes with them: behind the d columns of a position one says that it is no padding and one that it is of the second text.
// bert(vocab=30522, context=512, d=768, heads=12, layers=12) has BERT base's 109,482,240 parameters and the last layer.
#include <fmt/format.h>

#include "cohort/base/error.h"
#include "cohort/nn/models/layers.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

std::vector<SpecParam> bert_params() {
  return {{.name = "task",
           .type = SpecParam::Type::word,
           .doc = "classify: a class for a text or a pair; tag: one for each token; answer: start and end in the second text",
           .preset = "classify",
           .words = {"classify", "tag", "answer"}},
          whole("classes", "classes", 2),
          whole("vocab", "tokens there are", 30522),
          whole("context", "longest sequence", 512),
          whole("d", "model width", 768),
          whole("heads", "attention heads; d is a multiple", 12),
          whole("layers", "blocks", 12),
          whole("wide", "width inside a block; 0: 4 d", 0, 0),
          share("dropout", "in every block, after the embeddings and before the last layer", 0.1)};
}

struct BertSizes {
  std::int64_t d, heads, wide, vocabulary, context;
  double dropout;
};

torch::nn::LayerNorm bert_norm(std::int64_t d) { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({d}).eps(1e-12)); }

// What goes beside the d columns of each position.
struct BertMarks {
  at::Tensor states, marks;
  at::Tensor kept() const { return marks.select(-1, 0) > 0; }
  at::Tensor second() const { return marks.select(-1, 1) > 0; }
};
BertMarks bert_split(const at::Tensor& x, std::int64_t d) { return {x.narrow(-1, 0, d), x.narrow(-1, d, 2)}; }

struct BertEmbeddingsImpl : torch::nn::Module {
  explicit BertEmbeddingsImpl(const BertSizes& s) : sizes(s) {
    words = register_module("word_embeddings", torch::nn::Embedding(s.vocabulary, s.d));
    positions = register_module("position_embeddings", torch::nn::Embedding(s.context, s.d));
    types = register_module("token_type_embeddings", torch::nn::Embedding(2, s.d));
    norm = register_module("LayerNorm", bert_norm(s.d));
    dropout = register_module("dropout", torch::nn::Dropout(s.dropout));
  }
  at::Tensor forward(const at::Tensor& ids) {
    const std::int64_t t = ids.size(1);
    if (t > sizes.context)
      throw_failure(Kind::usage, "bert: {} tokens do not fit a context of {}; cut the texts (length=)", t, sizes.context);
    at::Tensor kept = ids.ne(0);
    kept.select(1, 0).fill_(true);  // a sequence of padding alone still has one position to attend to
    const at::Tensor last = ids.gather(1, kept.sum(1, /*keepdim=*/true) - 1);  // a separator, whatever its number
    const at::Tensor separator = ids.eq(last).to(torch::kLong);
    const at::Tensor second = kept.logical_and((separator.cumsum(1) - separator).gt(0));
    const at::Tensor sum = words(ids) + types(second.to(torch::kLong)) + positions->weight.slice(0, 0, t);
    const at::Tensor states = dropout(norm(sum));
    return torch::cat({states, torch::stack({kept, second}, -1).to(states.dtype())}, -1);
  }
  BertSizes sizes;
  torch::nn::Embedding words{nullptr}, positions{nullptr}, types{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(BertEmbeddings);

// A dense layer, dropout, the sum with what came in, and the norm: the end of both halves of a block.
struct BertOutputImpl : torch::nn::Module {
  BertOutputImpl(std::int64_t in, std::int64_t d, double share) {
    dense = register_module("dense", torch::nn::Linear(in, d));
    norm = register_module("LayerNorm", bert_norm(d));
    dropout = register_module("dropout", torch::nn::Dropout(share));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& before) { return norm(dropout(dense(x)) + before); }
  torch::nn::Linear dense{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(BertOutput);

struct BertLayerImpl : torch::nn::Module {
  explicit BertLayerImpl(const BertSizes& s) : sizes(s) {
    if (s.d % s.heads != 0) throw_failure(Kind::usage, "bert: d={} cannot be split into heads={}; make d a multiple", s.d, s.heads);
    const auto attention = std::make_shared<torch::nn::Module>("attention"), self = std::make_shared<torch::nn::Module>("self");
    const auto intermediate = std::make_shared<torch::nn::Module>("intermediate");
    register_module("attention", attention);
    attention->register_module("self", self);
    query = own(*self, "query", torch::nn::Linear(s.d, s.d));
    key = own(*self, "key", torch::nn::Linear(s.d, s.d));
    value = own(*self, "value", torch::nn::Linear(s.d, s.d));
    mixed = own(*attention, "output", BertOutput(s.d, s.d, s.dropout));
    register_module("intermediate", intermediate);
    wide = own(*intermediate, "dense", torch::nn::Linear(s.d, s.wide));
    output = register_module("output", BertOutput(s.wide, s.d, s.dropout));
  }
  at::Tensor forward(const at::Tensor& x) {
    const BertMarks in = bert_split(x, sizes.d);
    const std::int64_t n = x.size(0), t = x.size(1);
    const auto heads = [&](torch::nn::Linear& layer) {
      return layer(in.states).view({n, t, sizes.heads, sizes.d / sizes.heads}).transpose(1, 2);
    };
    const at::Tensor seen = at::scaled_dot_product_attention(heads(query), heads(key), heads(value), in.kept().view({n, 1, 1, t}),
                                                             is_training() ? sizes.dropout : 0.0);
    const at::Tensor middle = mixed(seen.transpose(1, 2).reshape({n, t, sizes.d}), in.states);
    return torch::cat({output(at::gelu(wide(middle)), middle), in.marks}, -1);
  }
  BertSizes sizes;
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, wide{nullptr};
  BertOutput mixed{nullptr}, output{nullptr};
};
TORCH_MODULE(BertLayer);

void add_bert_head(Model& model, torch::nn::Module& bert, const BertSizes& s, const std::string& task, std::int64_t classes) {
  auto& root = model.root();
  const std::int64_t d = s.d;
  auto dropout = own(root, "dropout", torch::nn::Dropout(s.dropout));
  if (task == "answer") {
    auto outputs = own(root, "qa_outputs", torch::nn::Linear(d, 2));
    constexpr double kNever = -1e4;  // of a logit outside the second text; fits fp16
    model.add({"head", {outputs.ptr()}, [outputs, d](const at::Tensor& x) mutable {
                 const BertMarks in = bert_split(x, d);
                 return outputs(in.states).transpose(1, 2).masked_fill(in.second().logical_not().unsqueeze(1), kNever);
               }});
    return;
  }
  if (task == "classify") {
    const auto pooler = std::make_shared<torch::nn::Module>("pooler");
    bert.register_module("pooler", pooler);
    auto dense = own(*pooler, "dense", torch::nn::Linear(d, d));
    model.add(
        {"pooler", {dense.ptr()}, [dense, d](const at::Tensor& x) mutable { return torch::tanh(dense(x.select(1, 0).narrow(-1, 0, d))); }});
  }
  const bool tag = task == "tag";
  auto classifier = own(root, "classifier", torch::nn::Linear(d, classes));
  model.add({"head", {dropout.ptr(), classifier.ptr()}, [dropout, classifier, d, tag](const at::Tensor& x) mutable {
               return classifier(dropout(tag ? x.narrow(-1, 0, d) : x));
             }});
}

Model build_bert(const SpecValues& values) {
  const BertSizes s{.d = values.integer("d"),
                    .heads = values.integer("heads"),
                    .wide = values.integer("wide") > 0 ? values.integer("wide") : 4 * values.integer("d"),
                    .vocabulary = values.integer("vocab"),
                    .context = values.integer("context"),
                    .dropout = values.real("dropout")};
  const auto root = std::make_shared<torch::nn::Module>("bert");
  Model model(root, {.sizes = {s.context}, .vocabulary = s.vocabulary});
  const auto bert = std::make_shared<torch::nn::Module>("bert"), encoder = std::make_shared<torch::nn::Module>("encoder");
  root->register_module("bert", bert);
  auto embeddings = own(*bert, "embeddings", BertEmbeddings(s));
  model.add({"embeddings", {embeddings.ptr()}, [embeddings](const at::Tensor& ids) mutable { return embeddings(ids); }});
  bert->register_module("encoder", encoder);
  auto list = own(*encoder, "layer", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < values.integer("layers"); ++i) {
    BertLayer layer(s);
    list->push_back(layer);
    model.add({fmt::format("layer.{}", i), {layer.ptr()}, [layer](const at::Tensor& x) mutable { return layer(x); }});
  }
  add_bert_head(model, *bert, s, values.word("task"), values.integer("classes"));
  return model;
}

void init_bert(torch::nn::Module& root, const SpecValues& values, const ParameterRng& rng) {
  init_gpt2(root, rng, values.integer("layers"));  // N(0, 0.02^2); nothing here is named c_proj
}

}  // namespace

extern const Architecture row_bert{.name = "bert",
                                   .about = "BERT: pairs, single texts, tags of tokens, answers in a text",
                                   .params = bert_params,
                                   .build = build_bert,
                                   .init = init_bert,
                                   .takes = Takes::tokens};

}  // namespace cohort::nn
