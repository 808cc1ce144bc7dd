#include "cohort/nn/tensor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>

#include <array>
#include <limits>
#include <vector>

namespace cohort::nn {
namespace {

using collective::Dtype;

struct TypeRow {
  at::ScalarType torch;
  Dtype dtype;
};
constexpr std::array<TypeRow, collective::kDtypes> kTypes{{
    {at::kHalf, Dtype::f16},
    {at::kBFloat16, Dtype::bf16},
    {at::kFloat, Dtype::f32},
    {at::kDouble, Dtype::f64},
    {at::kChar, Dtype::i8},
    {at::kByte, Dtype::u8},
    {at::kInt, Dtype::i32},
    {at::kLong, Dtype::i64},
    {at::kBool, Dtype::boolean},
    {at::kShort, Dtype::i16},
}};

// Elements of a tensor of these sizes; refuses negative sizes and products beyond the address space.
std::size_t elements(at::IntArrayRef sizes) {
  std::size_t count = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0) throw_failure(Kind::usage, "tensor: size {} in [{}] is negative", size, fmt::join(sizes, ", "));
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(size), &count) || count > std::numeric_limits<std::size_t>::max() / 8) {
      throw_failure(Kind::usage, "tensor: [{}] is more elements than memory can hold", fmt::join(sizes, ", "));
    }
  }
  return count;
}

}  // namespace

collective::Dtype dtype_of(at::ScalarType type) {
  for (const TypeRow& row : kTypes) {
    if (row.torch == type) return row.dtype;
  }
  throw_failure(Kind::usage, "collectives carry f16 bf16 f32 f64 i8 u8 i16 i32 i64 bool, not torch's {}; convert the tensor first",
                c10::toString(type));
}

at::ScalarType scalar_type_of(collective::Dtype dtype) {
  for (const TypeRow& row : kTypes) {
    if (row.dtype == dtype) return row.torch;
  }
  throw_failure(Kind::bug, "dtype {} has no row in nn/tensor.cc", static_cast<int>(dtype));
}

collective::Device device_of_tensor(const at::Tensor& tensor) {
  const at::Device device = tensor.device();
  if (device.is_cpu()) return collective::Device::cpu;
  if (device.is_cuda()) return {DeviceKind::cuda, device.index()};
  throw_failure(Kind::usage, "this communicator moves memory of the CPU and of CUDA GPUs, the tensor is on {}; move it with .cpu() first",
                device.str());
}

at::Device torch_device(collective::Device device) {
  return device.kind == DeviceKind::cpu ? at::Device(at::kCPU) : at::Device(at::kCUDA, device.index);
}

collective::Piece piece(const at::Tensor& tensor) {
  if (!tensor.defined()) throw_failure(Kind::usage, "an undefined tensor cannot take part in a collective; did backward reach it?");
  const collective::Device device = device_of_tensor(tensor);
  if (tensor.layout() != at::kStrided || !tensor.is_contiguous()) {
    throw_failure(Kind::usage, "a tensor of sizes [{}] is not contiguous, so its elements are not one block of memory; pass .contiguous()",
                  fmt::join(tensor.sizes(), ", "));
  }
  if (tensor.is_conj() || tensor.is_neg()) throw_failure(Kind::usage, "a lazily negated or conjugated tensor: pass .resolve_neg() first");
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), dtype_of(tensor.scalar_type()), device};
}

at::Tensor tensor(const collective::Region& region, at::IntArrayRef sizes, at::ScalarType type, collective::Device device) {
  const std::size_t wanted = elements(sizes) * collective::size_of(dtype_of(type));
  if (wanted > region.bytes()) {
    throw_failure(Kind::usage, "a {} tensor of sizes [{}] takes {} bytes, the region has {}; allocate more", c10::toString(type),
                  fmt::join(sizes, ", "), wanted, region.bytes());
  }
  // The deleter holds a Region, and with it the memory, until the last tensor on this storage goes.
  return at::from_blob(
      region.data(), sizes, [region](void*) {}, at::TensorOptions().dtype(type).device(torch_device(device)));
}

void all_reduce(collective::Communicator& comm, const at::Tensor& tensor, collective::Op op, const collective::Call& call) {
  comm.all_reduce(piece(tensor), op, call);
}

void all_reduce(collective::Communicator& comm, std::span<const at::Tensor> tensors, collective::Op op, const collective::Call& call) {
  std::vector<collective::Piece> pieces;
  pieces.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) pieces.push_back(piece(tensor));
  comm.all_reduce(pieces, op, call);
}

void broadcast(collective::Communicator& comm, const at::Tensor& tensor, Rank root, const collective::Call& call) {
  comm.broadcast(piece(tensor), root, call);
}

at::Tensor all_gather(collective::Communicator& comm, const at::Tensor& tensor, const collective::Call& call) {
  const collective::Piece mine = piece(tensor);
  std::vector<std::int64_t> sizes{comm.size()};
  sizes.insert(sizes.end(), tensor.sizes().begin(), tensor.sizes().end());
  at::Tensor all = at::empty(sizes, tensor.options().requires_grad(false));
  comm.all_gather(mine, piece(all), call);
  return all;
}

}  // namespace cohort::nn
