#include "cohort/train/loop/pretrained.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/nn/zoo.h"

namespace cohort::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Pretrained : testing::Test {
  TempDir dir;

  // The parameters of a model as a file; edit: what becomes of a name and its values.
  using Edit = std::function<std::pair<std::string, at::Tensor>(const std::string&, const at::Tensor&)>;
  std::string file(const nn::Model& model, const Edit& edit) {
    std::vector<at::Tensor> kept;
    std::vector<checkpoint::TensorView> views;
    for (const auto& [name, tensor] : model.named_parameters()) {
      auto [called, values] = edit(name, tensor.detach());
      if (called.empty()) continue;
      kept.push_back(values.contiguous());
      const at::Tensor& one = kept.back();
      const auto dtype = one.scalar_type() == torch::kHalf ? checkpoint::Dtype::f16 : checkpoint::Dtype::f32;
      views.push_back({.name = called,
                       .dtype = dtype,
                       .shape = one.sizes().vec(),
                       .data = ConstBytes(static_cast<const std::byte*>(one.const_data_ptr()), one.nbytes())});
    }
    const std::string path = dir.file(std::to_string(++files_) + ".safetensors");
    checkpoint::write_safetensors(path, views);
    return path;
  }

  static void expect_same(const nn::Model& a, const nn::Model& b, const std::string& but = "nothing") {
    const auto mine = a.named_parameters(), theirs = b.named_parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (mine[i].first.starts_with(but)) continue;
      EXPECT_TRUE(torch::equal(mine[i].second, theirs[i].second)) << mine[i].first;
    }
  }

 private:
  int files_ = 0;
};

const std::string kBert = "bert(vocab=20, context=8, d=8, heads=2, layers=2, dropout=0";

TEST_F(Pretrained, TakesBertsOldNamesAndKeepsANewLastLayer) {
  const nn::Model source = nn::make_model(kBert + ")", 1), target = nn::make_model(kBert + ", classes=5)", 2);
  const std::string path = file(source, [](std::string name, const at::Tensor& values) {
    if (name.starts_with("classifier")) return std::pair{std::string(), values};
    if (const auto at = name.find("LayerNorm.weight"); at != std::string::npos) name.replace(at, 16, "LayerNorm.gamma");
    if (const auto at = name.find("LayerNorm.bias"); at != std::string::npos) name.replace(at, 14, "LayerNorm.beta");
    return std::pair{name.substr(5), values};  // without "bert.", as sentence encoders are stored
  });
  EXPECT_THAT(load_pretrained(target, path), AllOf(HasSubstr("tensors of"), HasSubstr("new: classifier.weight, classifier.bias")));
  expect_same(target, source, "classifier");
}

TEST_F(Pretrained, TurnsGpt2sMatrices) {
  const std::string spec = "gpt(vocab=20, context=8, d=8, heads=2, layers=2)";
  const nn::Model source = nn::make_model(spec, 1), target = nn::make_model(spec, 2);
  const std::string path = file(source, [](const std::string& name, const at::Tensor& values) {
    const bool turned = values.dim() == 2 && name.starts_with("h.");
    return std::pair{"transformer." + name, turned ? values.t().contiguous() : values};
  });
  load_pretrained(target, path);
  expect_same(target, source);
}

TEST_F(Pretrained, WidensHalfs) {
  const nn::Model source = nn::make_model("mlp(in=4, hidden=8, out=2)", 1), target = nn::make_model("mlp(in=4, hidden=8, out=2)", 2);
  load_pretrained(target, file(source, [](const std::string& name, const at::Tensor& v) { return std::pair{name, v.to(torch::kHalf)}; }));
  for (const auto& [name, values] : source.named_parameters()) {
    const auto mine = target.root().named_parameters()[name];
    EXPECT_TRUE(torch::equal(mine, values.to(torch::kHalf).to(torch::kFloat))) << name;
  }
}

TEST_F(Pretrained, RefusesAnotherModelWithTheFirstTensorThatDoesNotFit) {
  const nn::Model source = nn::make_model("mlp(in=4, hidden=8, out=2)", 1);
  const std::string path = file(source, [](const std::string& name, const at::Tensor& v) { return std::pair{name, v}; });
  const auto said = [&](const char* spec) { return failure_of([&] { load_pretrained(nn::make_model(spec, 2), path); }); };
  EXPECT_THAT(said("mlp(in=5, hidden=8, out=2)").what, HasSubstr("'fc1.weight' is [8, 4] in"));
  EXPECT_THAT(said("mlp(in=4, hidden=8x8, out=2)").what, HasSubstr("no tensor 'fc2.weight'"));
  EXPECT_THAT(said("lenet5").what, HasSubstr("no tensor 'conv1.weight'"));
  EXPECT_EQ(said("lenet5").kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::train
