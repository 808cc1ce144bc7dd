#include "cohort/train/loop/via_host.h"

#include <torch/torch.h>

#include "cohort/base/error.h"

namespace cohort::train {
namespace {

template <class Operation>
void on_host(const at::Tensor& tensor, const Operation& operation) {
  if (tensor.device().is_cpu()) return operation(tensor);
  const torch::NoGradGuard no_grad;
  const at::Tensor here = tensor.cpu();
  operation(here);
  tensor.copy_(here);
}

}  // namespace

c10::Device device_for(const std::string& text, Rank rank) {
  if (text == "cpu") return c10::kCPU;
  const auto there = static_cast<std::int64_t>(torch::cuda::device_count());
  if (there == 0)
    throw_failure(Kind::usage,
                  "device={}: torch {} finds no GPU here; `nvidia-smi` and `cohort doctor` say what there is, device=cpu goes on", text,
                  TORCH_VERSION);
  const auto index = text == "cuda" ? rank.value % there : std::int64_t{std::stoi(text.substr(text.find(':') + 1))};
  if (index >= there) throw_failure(Kind::usage, "device={}: this host has {} GPUs, counted from 0", text, there);
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

void broadcast_via_host(collective::Communicator& comm, const at::Tensor& tensor, const std::string& name) {
  on_host(tensor, [&](const at::Tensor& t) { nn::broadcast(comm, t, Rank{0}, {.name = name}); });
}

void average_via_host(collective::Communicator& comm, const at::Tensor& tensor, const std::string& name) {
  on_host(tensor, [&](const at::Tensor& t) { nn::all_reduce(comm, t, collective::Op::average, {.name = name}); });
}

}  // namespace cohort::train
