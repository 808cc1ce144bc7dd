// A multilayer perceptron: flatten, then linear and ReLU for every hidden width, then linear. Images of any shape with `in` values.
#include "cohort/base/error.h"
#include "cohort/nn/models/layers.h"
#include "cohort/nn/ops/linear.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

std::vector<SpecParam> mlp_params() {
  return {whole("in", "values of one sample", 784),
          {.name = "hidden",
           .type = SpecParam::Type::text,
           .doc = "widths of the hidden layers, 512x512; none: a linear model",
           .preset = "512x512"},
          whole("out", "classes", 10)};
}

// "512x256" -> {512, 256}
std::vector<std::int64_t> widths_of(const std::string& text) {
  std::vector<std::int64_t> widths;
  if (text == "none") return widths;
  constexpr std::size_t kMostDigits = 7;
  std::string digits;
  for (const char c : text + "x") {
    if (c >= '0' && c <= '9' && digits.size() < kMostDigits) {
      digits += c;
      continue;
    }
    if (c != 'x' || digits.empty() || std::stoll(digits) == 0) {
      throw_failure(Kind::usage, "mlp: hidden={} is not a list of widths; write 512x512, or none", text);
    }
    widths.push_back(std::stoll(digits));
    digits.clear();
  }
  return widths;
}

Model build_mlp(const SpecValues& values) {
  const auto root = std::make_shared<torch::nn::Module>("mlp");
  Model model(root, {.sizes = {values.integer("in")}});
  std::int64_t in = values.integer("in");
  for (const std::int64_t width : widths_of(values.text("hidden"))) {
    const std::string name = "fc" + std::to_string(model.blocks().size() + 1);
    auto linear = own(*root, name, torch::nn::Linear(in, width));
    model.add({name, {linear.ptr()}, [linear](const at::Tensor& x) mutable { return torch::relu(nn::linear(*linear, x.flatten(1))); }});
    in = width;
  }
  auto head = own(*root, "head", torch::nn::Linear(in, values.integer("out")));
  model.add({"head", {head.ptr()}, [head](const at::Tensor& x) mutable { return nn::linear(*head, x.flatten(1)); }});
  return model;
}

void init_mlp(torch::nn::Module& root, const SpecValues&, const ParameterRng& rng) { init_default(root, rng); }

}  // namespace

extern const Architecture row_mlp{
    .name = "mlp", .about = "multilayer perceptron", .params = mlp_params, .build = build_mlp, .init = init_mlp, .takes = Takes::flat};

}  // namespace cohort::nn
