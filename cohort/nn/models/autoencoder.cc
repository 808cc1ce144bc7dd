// A deep autoencoder (Hinton and Salakhutdinov 2006): in - widths - in, mirrored about the code, the last width.
//   encoder  relu(W x + b) .. code = W h + b          decoder  relu(W h + b) .. out = sigmoid(W h + b)
// For data.train: reconstruct(of=..). 1000x500x250x30 on 784 pixels has 2,837,314 parameters.
#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/nn/models/layers.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

std::vector<SpecParam> autoencoder_params() {
  return {whole("in", "values of one sample", 784),
          {.name = "widths",
           .type = SpecParam::Type::text,
           .doc = "of the encoder's layers; the last one is the code",
           .preset = "1000x500x250x30"},
          {.name = "output",
           .type = SpecParam::Type::word,
           .doc = "sigmoid: pixels in [0, 1]; linear: any values",
           .preset = "sigmoid",
           .words = {"sigmoid", "linear"}}};
}

constexpr std::int64_t kMostWidth = 1 << 24;

Model build_autoencoder(const SpecValues& values) {
  std::vector<std::int64_t> widths;
  for (const std::string_view part : split(values.text("widths"), 'x')) widths.push_back(parse_int(part));
  if (widths.empty() || *std::ranges::min_element(widths) < 1 || *std::ranges::max_element(widths) > kMostWidth)
    throw_failure(Kind::usage, "autoencoder: widths={} is not a list of widths; write 1000x500x250x30", printable(values.text("widths")));
  std::vector<std::int64_t> sizes{values.integer("in")};
  sizes.insert(sizes.end(), widths.begin(), widths.end());
  sizes.insert(sizes.end(), widths.rbegin() + 1, widths.rend());
  sizes.push_back(values.integer("in"));
  const auto root = std::make_shared<torch::nn::Module>("autoencoder");
  Model model(root, {.sizes = {values.integer("in")}});
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    const bool encodes = i < widths.size(), code = i + 1 == widths.size(), last = i + 2 == sizes.size();
    const std::string name = (encodes ? "encoder" : "decoder") + std::to_string(encodes ? i + 1 : i + 1 - widths.size());
    auto layer = own(*root, name, torch::nn::Linear(sizes[i], sizes[i + 1]));
    const bool sigmoid = last && values.word("output") == "sigmoid", relu = !code && !last;
    model.add({name, {layer.ptr()}, [layer, sigmoid, relu](const at::Tensor& x) mutable {
                 at::Tensor y = layer(x.flatten(1));
                 return sigmoid ? torch::sigmoid(y) : relu ? torch::relu(y) : y;
               }});
  }
  return model;
}

void init_autoencoder(torch::nn::Module& root, const SpecValues&, const ParameterRng& rng) { init_default(root, rng); }

}  // namespace

extern const Architecture row_autoencoder{.name = "autoencoder",
                                          .about = "deep autoencoder, for data sets that are reconstructed",
                                          .params = autoencoder_params,
                                          .build = build_autoencoder,
                                          .init = init_autoencoder,
                                          .takes = Takes::flat};

}  // namespace cohort::nn
