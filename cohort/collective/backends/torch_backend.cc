#include "cohort/collective/backends/torch_backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace cohort::collective {
namespace {

// In the order of Dtype's enumerators.
constexpr std::array<at::ScalarType, kDtypes> kTorchTypes{at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kChar,
                                                          at::kByte, at::kInt,      at::kLong,  at::kBool,   at::kShort};

c10d::ReduceOp torch_op(Op op) {
  switch (op) {
    case Op::min: return c10d::ReduceOp::MIN;
    case Op::max: return c10d::ReduceOp::MAX;
    case Op::product: return c10d::ReduceOp::PRODUCT;
    default: return c10d::ReduceOp::SUM;
  }
}

// torch's groups have a timeout of their own; ours expires first, with the better message.
constexpr auto kLater = std::chrono::seconds(5);
std::chrono::milliseconds torch_timeout(const WaitOptions& wait_options) {
  constexpr auto kLongest = std::chrono::hours(24 * 365);
  const auto left = wait_options.deadline.never() ? kLongest : std::min<Clock::duration>(wait_options.deadline.left(), kLongest);
  return std::chrono::ceil<std::chrono::milliseconds>(left) + kLater;
}

template <class Options>
Options options_for(const WaitOptions& wait_options) {
  Options options;
  options.timeout = torch_timeout(wait_options);
  return options;
}

std::vector<int64_t> byte_counts(const Layout& layout, std::size_t element) {
  std::vector<int64_t> counts;
  for (const auto count : layout.counts) counts.push_back(static_cast<int64_t>(count * element));
  return counts;
}

bool even(const Layout& layout) {
  return std::all_of(layout.counts.begin(), layout.counts.end(), [&](std::size_t count) { return count == layout.counts[0]; });
}

at::Tensor over(void* data, std::size_t count, at::ScalarType type, Device device) {
  auto options = at::TensorOptions().dtype(type);
  if (device.kind == DeviceKind::cuda) options = options.device(at::Device(at::kCUDA, device.index));
  if (count == 0) return at::empty({0}, options);
  return at::from_blob(data, {static_cast<int64_t>(count)}, options);
}

}  // namespace

at::Tensor tensor_of(Piece p) { return over(p.data, p.count, kTorchTypes[static_cast<std::size_t>(p.dtype)], p.device); }
at::Tensor bytes_tensor(Piece p) { return over(p.data, p.bytes(), at::kByte, p.device); }

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

template <class Start>
void TorchBackend::run(std::string_view what, const WaitOptions& wait_options, Start start) {
  in_torch(fmt::format("{} of {}", what, text()), [&] { wait(start(), wait_options); });
}

void TorchBackend::all_reduce(Piece data, Op op, const WaitOptions& wait_options) {
  const auto held = on(wait_options.stream);
  auto options = options_for<c10d::AllreduceOptions>(wait_options);
  options.reduceOp = torch_op(op);
  std::vector<at::Tensor> tensors{tensor_of(data)};
  run("all_reduce", wait_options, [&] { return group().allreduce(tensors, options); });
}

void TorchBackend::reduce_scatter(Piece in, Piece out, Op op, const Layout& layout, const WaitOptions& wait_options) {
  const auto held = on(wait_options.stream);
  const at::Tensor copy = in_torch("reduce_scatter", [&] { return tensor_of(in).clone(); });
  all_reduce({copy.data_ptr(), in.count, in.dtype, in.device}, op, wait_options);
  if (out.count == 0) return;
  const auto first = static_cast<int64_t>(layout.offsets[static_cast<std::size_t>(rank_)]);
  in_torch("reduce_scatter", [&] { return tensor_of(out).copy_(copy.narrow(0, first, static_cast<int64_t>(out.count))); });
}

void TorchBackend::all_gather(Piece in, Piece out, const Layout& layout, const WaitOptions& wait_options) {
  const auto held = on(wait_options.stream);
  if (even(layout)) {
    const auto options = options_for<c10d::AllgatherOptions>(wait_options);
    at::Tensor whole = bytes_tensor(out), part = bytes_tensor(in);
    return run("all_gather", wait_options, [&] { return group()._allgather_base(whole, part, options); });
  }
  if (in.count > 0) in_torch("all_gather", [&] { return bytes_tensor(layout.part(out, rank_)).copy_(bytes_tensor(in)); });
  for (int r = 0; r < size_; ++r)
    if (layout.counts[static_cast<std::size_t>(r)] > 0) broadcast(layout.part(out, r), r, wait_options);
}

void TorchBackend::broadcast(Piece data, int root, const WaitOptions& wait_options) {
  const auto held = on(wait_options.stream);
  auto options = options_for<c10d::BroadcastOptions>(wait_options);
  options.rootRank = root;
  std::vector<at::Tensor> tensors{bytes_tensor(data)};
  run("broadcast", wait_options, [&] { return group().broadcast(tensors, options); });
}

void TorchBackend::reduce(Piece in, Piece out, Op op, int root, const WaitOptions& wait_options) {
  const auto held = on(wait_options.stream);
  auto options = options_for<c10d::ReduceOptions>(wait_options);
  options.reduceOp = torch_op(op);
  options.rootRank = root;
  // A group reduces in place and uses every rank's tensor as it goes.
  std::vector<at::Tensor> tensors{in_torch("reduce", [&] { return tensor_of(in).clone(); })};
  run("reduce", wait_options, [&] { return group().reduce(tensors, options); });
  if (rank_ == root) in_torch("reduce", [&] { return tensor_of(out).copy_(tensors[0]); });
}

void TorchBackend::all_to_all(Piece in, Piece out, const Layout& sends, const Layout& recvs, const WaitOptions& wait_options) {
  const auto held = on(wait_options.stream);
  const auto options = options_for<c10d::AllToAllOptions>(wait_options);
  at::Tensor to = bytes_tensor(out), from = bytes_tensor(in);
  auto incoming = byte_counts(recvs, size_of(out.dtype)), outgoing = byte_counts(sends, size_of(in.dtype));
  run("all_to_all", wait_options, [&] { return group().alltoall_base(to, from, incoming, outgoing, options); });
}

}  // namespace cohort::collective
