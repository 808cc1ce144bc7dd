#include "cohort/plan/forecast/operands.h"

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <random>
#include <span>

#include "cohort/plan/forecast/fake_tensor.h"
#include "cohort/plan/forecast/kernels.h"

namespace cohort::plan::forecast {
namespace {

using Change = std::function<at::Tensor(const at::Tensor&)>;

// The values with every tensor in them changed.
torch::jit::Stack changed(const torch::jit::Stack& values, const Change& change) {
  const auto one = [&](const at::Tensor& t) { return t.defined() ? change(t) : t; };
  torch::jit::Stack out;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      out.emplace_back(one(value.toTensor()));
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector()) list.push_back(one(t));
      out.emplace_back(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector()) list.push_back(t ? std::optional(one(*t)) : t);
      out.emplace_back(list);
    } else {
      out.push_back(value);
    }
  }
  return out;
}

// Below what an index may be: rows of a table, classes, places of an image.
std::int64_t bound_of(const std::string& name, const torch::jit::Stack& arguments) {
  const auto tensor = [&](std::size_t i) { return arguments.at(i).toTensor(); };
  if (name == "aten::embedding") return tensor(0).size(0);
  if (name == "aten::embedding_dense_backward") return arguments.at(2).toInt();
  if (name == "aten::max_pool2d_with_indices_backward") return tensor(1).size(-1) * tensor(1).size(-2);
  if (name == "aten::nll_loss_forward" || name == "aten::nll_loss_backward")
    return tensor(name == "aten::nll_loss_forward" ? 0 : 1).size(-1);
  return 1;
}

// Memory for the whole reach of the tensor, so that expanded ones (stride 0) work too.
at::Tensor solid(const at::Tensor& like, double value) {
  const auto bytes = at::detail::computeStorageNbytes(like.sizes(), like.strides(), like.element_size());
  const at::Tensor flat = at::full({static_cast<std::int64_t>(bytes / like.element_size())}, value, like.options().device(at::kCPU));
  return flat.as_strided(like.sizes(), like.strides());
}

// Numbers between 0 and 1 in no order: a pooling of equal ones would guess every branch right, and took a fifth of its time.
at::Tensor numbers(const at::Tensor& like) {
  at::Tensor made = solid(like, 0.5);
  if (like.numel() == 0 || !like.is_non_overlapping_and_dense()) return made;
  at::Tensor drawn = at::empty(like.numel(), at::TensorOptions(at::kFloat).device(at::kCPU));
  std::minstd_rand draw;
  for (float& x : std::span(drawn.data_ptr<float>(), static_cast<std::size_t>(like.numel())))
    x = static_cast<float>(draw()) / static_cast<float>(std::minstd_rand::max());
  return made.copy_(drawn.view(like.sizes()));
}

// Indices that lie as a real batch's do: spread over the whole range, in rising order within an image.
at::Tensor indices(const at::Tensor& like, std::int64_t bound) {
  at::Tensor made = solid(like, 0);
  if (bound <= 1 || like.numel() == 0 || !like.is_non_overlapping_and_dense()) return made;
  const std::int64_t apart =
      std::max<std::int64_t>(1, like.dim() == 4 ? bound / std::max<std::int64_t>(1, like.size(-1) * like.size(-2)) : 7);
  return made.copy_(at::arange(like.numel(), made.options()).mul_(apart).remainder_(bound).view(like.sizes()));
}

}  // namespace

torch::jit::Stack materialize(const std::string& name, const torch::jit::Stack& arguments, Contents contents) {
  const std::int64_t bound = bound_of(name, arguments);
  return changed(arguments, [&](const at::Tensor& t) {
    const bool floating = at::isFloatingType(t.scalar_type());
    if (!is_fake(t) && !t.is_meta() && (floating || bound <= 1)) return t;
    if (!floating && t.scalar_type() == at::kLong) return indices(t, bound);
    if (floating && contents == Contents::any) return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kCPU));
    return floating ? numbers(t) : solid(t, 1);
  });
}

torch::jit::Stack strip_memory(const torch::jit::Stack& values) {
  return changed(values, [](const at::Tensor& t) { return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta)); });
}

torch::jit::Stack on_meta(const torch::jit::Stack& values) {
  auto out = strip_memory(values);
  for (c10::IValue& value : out)
    if (value.isDevice()) value = c10::Device(c10::kMeta);
  return out;
}

double bytes_of(const torch::jit::Stack& values) {
  double bytes = 0;
  changed(values, [&](const at::Tensor& t) {
    bytes += static_cast<double>(t.numel()) * static_cast<double>(t.element_size());
    return t;
  });
  return bytes;
}

// Two operations a multiplication and addition. The backward of a convolution or of attention is counted by what it computes.
double flops_of(const std::string& name, const torch::jit::Stack& a, const torch::jit::Stack& results) {
  const auto tensor = [&](std::size_t i) { return a.at(i).toTensor(); };
  const auto count = [](const at::Tensor& t) { return static_cast<double>(t.numel()); };
  if (name == "aten::mm" || name == "aten::bmm") return 2 * count(tensor(0)) * static_cast<double>(tensor(1).size(-1));
  if (name == "aten::addmm" || name == "aten::addmm_") return 2 * count(tensor(1)) * static_cast<double>(tensor(2).size(-1));
  if (name == "aten::convolution") return 2 * count(results.at(0).toTensor()) * count(tensor(1)) / static_cast<double>(tensor(1).size(0));
  if (name == "aten::convolution_backward") {
    const double one = 2 * count(tensor(0)) * count(tensor(2)) / static_cast<double>(tensor(2).size(0));
    return one * (static_cast<int>(results.at(0).toTensor().defined()) + static_cast<int>(results.at(1).toTensor().defined()));
  }
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu") return 4 * count(tensor(0)) * static_cast<double>(tensor(1).size(-2));
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward")
    return 10 * count(tensor(1)) * static_cast<double>(tensor(2).size(-2));
  if (name.starts_with("aten::mkldnn_rnn_layer")) {
    const at::Tensor x = tensor(0), weights = tensor(1), hidden = tensor(2);
    const double steps = static_cast<double>(x.size(0) * x.size(1));
    return (name.ends_with("backward") ? 4 : 2) * steps * (count(weights) + count(hidden));
  }
  return 0;
}

}  // namespace cohort::plan::forecast
