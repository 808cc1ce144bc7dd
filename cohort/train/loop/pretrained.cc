#include "cohort/train/loop/pretrained.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/safetensors.h"

namespace cohort::train {
namespace {

using checkpoint::Dtype;
using checkpoint::SafetensorsFile;
using checkpoint::TensorEntry;

// A name without what wraps a model in files, and in today's words.
std::string bare(std::string name) {
  for (const std::string_view prefix : {"module.", "model.", "transformer.", "bert."})
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  for (const auto& [old, now] : {std::pair{"LayerNorm.gamma", "LayerNorm.weight"}, std::pair{"LayerNorm.beta", "LayerNorm.bias"}})
    if (name.ends_with(old)) name.replace(name.size() - std::string_view(old).size(), std::string::npos, now);
  return name;
}

torch::ScalarType type_of(const TensorEntry& entry, const std::string& path) {
  switch (entry.dtype) {
    case Dtype::f32: return torch::kFloat;
    case Dtype::f16: return torch::kHalf;
    case Dtype::bf16: return torch::kBFloat16;
    case Dtype::f64: return torch::kDouble;
    case Dtype::i64: return torch::kLong;
    default: break;
  }
  throw_failure(Kind::usage, "{}: tensor {} is of type {}; F32, F16, BF16, F64 and I64 can be taken", path, printable(entry.name),
                checkpoint::dtype_name(entry.dtype));
}

at::Tensor read(const SafetensorsFile& file, const TensorEntry& entry) {
  at::Tensor values = torch::empty(entry.shape, type_of(entry, file.path()));
  file.read(entry, Bytes(static_cast<std::byte*>(values.data_ptr()), values.nbytes()));
  return values;
}

bool turned_matrix(std::string_view name) {
  return std::ranges::any_of(std::array{".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight", ".mlp.c_proj.weight"},
                             [&](const char* end) { return name.ends_with(end); });
}

class Loader {
 public:
  Loader(const nn::Model& model, const std::string& path) : model_(model), file_(path) {
    for (const TensorEntry& entry : file_.tensors()) {
      by_name_.emplace(bare(entry.name), &entry);
      // square matrices do not show it: c_attn, d rows and 3 d columns, does for all
      turned_ = turned_ || (entry.name.ends_with(".attn.c_attn.weight") && entry.shape.size() == 2 && entry.shape[1] == 3 * entry.shape[0]);
    }
    for (const auto& [name, tensor] : model.named_parameters(model.blocks().back())) last_.insert(name);
    for (std::size_t i = 0; i + 1 < model.blocks().size(); ++i)  // tied to an earlier block: not its own
      for (const auto& [name, tensor] : model.named_parameters(model.blocks()[i])) last_.erase(name);
  }

  std::string load() {
    const torch::NoGradGuard no_grad;
    nn::NamedTensors all = model_.named_parameters();
    const nn::NamedTensors buffers = model_.named_buffers();
    all.insert(all.end(), buffers.begin(), buffers.end());
    for (const auto& [name, tensor] : all) take(name, tensor);
    if (used_.empty())
      throw_failure(Kind::usage, "pretrained: {} has no tensor of the model; its first is '{}', the model's '{}'", file_.path(),
                    file_.tensors().empty() ? "" : printable(file_.tensors().front().name), all.front().first);
    std::string text = fmt::format("{} tensors of {}", used_.size(), file_.path());
    if (!fresh_.empty()) text += fmt::format("; new: {}", fmt::join(fresh_, ", "));
    if (used_.size() < file_.tensors().size()) text += fmt::format("; not used: {}", file_.tensors().size() - used_.size());
    return text;
  }

 private:
  void take(const std::string& name, const at::Tensor& tensor) {
    const auto at = by_name_.find(bare(name));
    const bool last = last_.contains(name), counter = name.ends_with("num_batches_tracked");
    if (at == by_name_.end()) {
      if (last) return fresh_.push_back(name);
      if (counter) return;  // older files have none
      throw_failure(Kind::usage, "pretrained: {} has no tensor '{}'; the model is another one, or of other sizes", file_.path(), name);
    }
    const TensorEntry& entry = *at->second;
    const bool turn = turned_ && turned_matrix(name) && entry.shape.size() == 2;
    std::vector<std::int64_t> shape = entry.shape;
    if (turn) std::swap(shape[0], shape[1]);
    if (at::IntArrayRef(shape) != tensor.sizes()) {
      if (last) return fresh_.push_back(name);
      throw_failure(Kind::usage, "pretrained: '{}' is [{}] in {} but [{}] in the model; give the model the sizes of the file", name,
                    fmt::join(shape, ", "), file_.path(), fmt::join(tensor.sizes(), ", "));
    }
    const at::Tensor values = read(file_, entry);
    tensor.copy_(turn ? values.t() : values);
    used_.insert(&entry);
  }

  const nn::Model& model_;
  const SafetensorsFile file_;
  std::map<std::string, const TensorEntry*> by_name_;  // by bare names
  std::set<std::string> last_;                         // parameters of the last block
  bool turned_ = false;                                // GPT-2's layout
  std::vector<std::string> fresh_;
  std::set<const TensorEntry*> used_;
};

}  // namespace

std::string load_pretrained(const nn::Model& model, const std::string& path) { return Loader(model, path).load(); }

}  // namespace cohort::train
