#include "cohort/python/c10d/tensor_pieces.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include "cohort/base/error.h"

namespace cohort::python {
namespace {

using collective::Dtype;
using collective::Op;
using collective::Piece;

std::optional<Dtype> known(at::ScalarType type) {
  switch (type) {
    case at::kHalf: return Dtype::f16;
    case at::kBFloat16: return Dtype::bf16;
    case at::kFloat: return Dtype::f32;
    case at::kDouble: return Dtype::f64;
    case at::kChar: return Dtype::i8;
    case at::kByte: return Dtype::u8;
    case at::kInt: return Dtype::i32;
    case at::kLong: return Dtype::i64;
    case at::kBool: return Dtype::boolean;
    default: return std::nullopt;
  }
}

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 12  // its name then
using Supplement = c10d::NCCLPreMulSumSupplement;
#else
using Supplement = c10d::PreMulSumSupplement;
#endif

double factor(const c10d::ReduceOp& op) {
  const auto* const supplement = dynamic_cast<const Supplement*>(op.supplement_.get());
  if (supplement == nullptr)
    throw_failure(Kind::usage, "PREMUL_SUM without its factor; make it by torch.distributed._make_nccl_premul_sum");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

}  // namespace

at::Tensor dense(const at::Tensor& tensor, const char* collective) {
  if (!tensor.defined()) throw_failure(Kind::usage, "{}: an undefined tensor; did backward reach it?", collective);
  if (!tensor.device().is_cpu()) {
    throw_failure(Kind::usage,
                  "{}: the backend 'cohort' moves CPU memory, the tensor is on {}; use .cpu(), or "
                  "init_process_group(\"cpu:cohort,cuda:nccl\") so that each device has its backend",
                  collective, tensor.device().str());
  }
  if (tensor.layout() != at::kStrided)
    throw_failure(Kind::usage, "{}: a sparse tensor; only all_reduce takes one. Use .to_dense() first", collective);
  const at::AutoDispatchBelowADInplaceOrView raw;
  const at::Tensor plain = tensor.resolve_conj().resolve_neg();
  return plain.is_contiguous() ? plain.detach() : plain.contiguous();
}

void copy_back(const at::Tensor& memory, const at::Tensor& tensor) {
  if (memory.data_ptr() == tensor.data_ptr()) return;
  const at::AutoDispatchBelowADInplaceOrView raw;  // below autograd: results arrive unseen by it, as with every backend
  tensor.copy_(memory);
}

std::size_t width(at::ScalarType type) { return known(type) ? 1 : c10::elementSize(type); }

Piece moved(const at::Tensor& dense) {
  const auto count = static_cast<std::size_t>(dense.numel());
  const auto type = known(dense.scalar_type());
  return {dense.data_ptr(), count * width(dense.scalar_type()), type.value_or(Dtype::u8)};
}

Piece reduced(const at::Tensor& dense) { return moved(dense); }

ReduceSpec reduce_spec(const c10d::ReduceOp& op, at::ScalarType type, const char* collective) {
  const auto dtype = known(type);
  const auto refuse = [&](const char* what) {
    throw_failure(Kind::usage, "{}: {} cannot be reduced by {}; convert the tensor first (reducible: f16 bf16 f32 f64 i8 u8 i32 i64 bool)",
                  collective, c10::toString(type), what);
  };
  using R = c10d::ReduceOp::RedOpType;
  const auto plain = [&](Op meant, const char* what) {
    if (!dtype || !reducible(*dtype, meant)) refuse(what);
    return ReduceSpec{.op = meant};
  };
  const auto bitwise = [&](ReduceSpec::Bits bits, const char* what) {
    if (!c10::isIntegralType(type, true)) refuse(what);
    return ReduceSpec{.bits = bits};
  };
  switch (static_cast<R>(op)) {
    case R::SUM: return plain(Op::sum, "SUM");
    case R::AVG: return plain(Op::average, "AVG");
    case R::PRODUCT: return plain(Op::product, "PRODUCT");
    case R::MIN: return plain(Op::min, "MIN");
    case R::MAX: return plain(Op::max, "MAX");
    case R::BAND: return bitwise(ReduceSpec::Bits::band, "BAND");
    case R::BOR: return bitwise(ReduceSpec::Bits::bor, "BOR");
    case R::BXOR: return bitwise(ReduceSpec::Bits::bxor, "BXOR");
    case R::PREMUL_SUM: {
      ReduceSpec how = plain(Op::sum, "PREMUL_SUM");
      how.prescale = factor(op);
      return how;
    }
    default: throw_failure(Kind::usage, "{}: an unknown reduction ({})", collective, static_cast<int>(static_cast<R>(op)));
  }
}

void combine(const at::Tensor& gathered, ReduceSpec::Bits bits, const at::Tensor& into) {
  const at::AutoDispatchBelowADInplaceOrView raw;
  at::Tensor sum = gathered.select(0, 0).clone();
  for (std::int64_t r = 1; r < gathered.size(0); ++r) {
    const at::Tensor row = gathered.select(0, r);
    if (bits == ReduceSpec::Bits::band) sum.bitwise_and_(row);
    if (bits == ReduceSpec::Bits::bor) sum.bitwise_or_(row);
    if (bits == ReduceSpec::Bits::bxor) sum.bitwise_xor_(row);
  }
  into.copy_(sum.view(into.sizes()));
}

// ---- lists

FlatTensors::FlatTensors(const std::vector<at::Tensor>& tensors, const char* collective) {
  if (tensors.empty()) throw_failure(Kind::usage, "{}: an empty list of tensors", collective);
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) throw_failure(Kind::usage, "{}: an undefined tensor in a list", collective);
    const at::AutoDispatchBelowADInplaceOrView raw;
    tensors_.push_back(tensor.detach());  // sizes of our own: the user's may change
  }
  const at::ScalarType type = tensors_.front().scalar_type();
  std::int64_t count = 0;
  views_ = true;
  auto* const first = static_cast<std::byte*>(tensors_.front().data_ptr());
  for (const at::Tensor& tensor : tensors_) {
    if (tensor.scalar_type() != type) {
      throw_failure(Kind::usage, "{}: the tensors of one list differ in type ({} and {})", collective, c10::toString(type),
                    c10::toString(tensor.scalar_type()));
    }
    const at::Tensor plain = dense(tensor, collective);  // for its checks
    const auto offset = static_cast<std::size_t>(count) * c10::elementSize(type);
    views_ = views_ && plain.data_ptr() == tensor.data_ptr() &&
             (tensor.numel() == 0 || (tensor.storage().is_alias_of(tensors_.front().storage()) && tensor.data_ptr() == first + offset));
    count += tensor.numel();
  }
  const auto options = at::TensorOptions().dtype(type);
  if (!views_) {
    memory_ = at::empty({count}, options);
  } else {
    memory_ = at::from_blob(first, {count}, options);  // tensors_ keeps the memory
  }
}

std::vector<std::size_t> FlatTensors::counts() const {
  std::vector<std::size_t> counts;
  for (const at::Tensor& tensor : tensors_) counts.push_back(static_cast<std::size_t>(tensor.numel()) * width(tensor.scalar_type()));
  return counts;
}

void FlatTensors::fill() const {
  if (views_) return;
  const at::AutoDispatchBelowADInplaceOrView raw;
  std::int64_t at = 0;
  for (const at::Tensor& tensor : tensors_) {
    memory_.narrow(0, at, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    at += tensor.numel();
  }
}

void FlatTensors::spread() const {
  if (views_) return;
  const at::AutoDispatchBelowADInplaceOrView raw;
  std::int64_t at = 0;
  for (const at::Tensor& tensor : tensors_) {
    tensor.copy_(memory_.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

}  // namespace cohort::python
