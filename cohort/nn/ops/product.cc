#include "cohort/nn/ops/product.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>

namespace cohort::nn {
namespace {

constexpr std::int64_t kNarrow = 64, kFewRows = 32;  // below these MKL is as fast, or faster

using Signature = at::Tensor(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, std::string_view then,
                             c10::List<std::optional<at::Scalar>> scalars, std::optional<std::string_view> algorithm);

bool faster_here() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

// oneDNN's product as torch's compiler calls it; none: this torch has it not, or in another form.
std::optional<c10::TypedOperatorHandle<Signature>> find_one_dnn() {
  if (!faster_here() || !at::hasMKLDNN()) return std::nullopt;
  const auto op = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  if (!op) return std::nullopt;
  try {
    return op->typed<Signature>();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

bool suits(const at::Tensor& x, const at::Tensor& weight) {
  return !at::GradMode::is_enabled() && x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat && x.size(0) >= kFewRows &&
         std::min(weight.size(0), weight.size(1)) >= kNarrow;
}

}  // namespace

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  static const auto one_dnn = find_one_dnn();
  if (one_dnn && suits(x, weight))
    return one_dnn->call(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, "none", c10::List<std::optional<at::Scalar>>(),
                         std::nullopt);
  return bias.defined() ? at::addmm(bias, x, weight.t()) : x.mm(weight.t());
}

}  // namespace cohort::nn
