#include "cohort/train/loop/via_host.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/cuda/runtime.h"
#include "cohort/job/run_on_all.h"

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

namespace {

// Of this start of the kernel, which containers of a host share.
std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  return {std::istreambuf_iterator<char>(file), {}};
}

// Of the GPUs that this process sees, the same on ranks that see the same: their identities, or without kernels to ask, the host's.
std::uint64_t hash_of_gpus() {
  std::string all;
  for (int i = 0; i < cuda::devices(); ++i) all += cuda::info(i).uuid;
  if (all.empty()) all = host_identity();
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : all) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

struct Neighbours {
  int before = 0, all = 0;  // ranks that see the same GPUs
};
Neighbours neighbours(collective::Communicator& comm) {
  auto mine = static_cast<std::int64_t>(hash_of_gpus());
  std::vector<std::int64_t> hashes(static_cast<std::size_t>(comm.size()));
  comm.all_gather(collective::piece(std::span(&mine, 1)), collective::piece(std::span(hashes)), {.name = "which GPUs ranks see"});
  const auto me = hashes.begin() + comm.rank().value;
  return {static_cast<int>(std::count(hashes.begin(), me, mine)), static_cast<int>(std::count(hashes.begin(), hashes.end(), mine))};
}

int index_of(const std::string& text, const Neighbours& ranks) {
  const auto there = static_cast<int>(torch::cuda::device_count());
  if (there == 0)
    throw_failure(Kind::usage,
                  "device={}: torch {} finds no GPU here; `nvidia-smi` and `cohort doctor` say what there is, device=cpu goes on", text,
                  TORCH_VERSION);
  const int index = text == "cuda" ? ranks.before : std::stoi(text.substr(text.find(':') + 1));
  if (text == "cuda" && ranks.all > there)
    throw_failure(Kind::usage,
                  "device=cuda: {} ranks of this host see {} GPU{}, and each wants one of its own: start as many ranks as GPUs (-n gpu), "
                  "or say device=cuda:0 to let them share that one",
                  ranks.all, there, there == 1 ? "" : "s");
  if (index >= there) throw_failure(Kind::usage, "device={}: this host has {} GPUs, counted from 0", text, there);
  return index;
}

}  // namespace

c10::Device device_for(collective::Communicator& comm, const std::string& text) {
  c10::Device device(c10::kCPU);
  if (text == "cpu") return device;
  const Neighbours ranks = neighbours(comm);
  job::run_on_all(comm, "device", [&] {
    device = {c10::kCUDA, static_cast<c10::DeviceIndex>(index_of(text, ranks))};
    c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(device);
  });
  return device;
}

void broadcast_via_host(collective::Communicator& comm, const at::Tensor& tensor, const std::string& name) {
  on_host(tensor, [&](const at::Tensor& t) { nn::broadcast(comm, t, Rank{0}, {.name = name}); });
}

void average_via_host(collective::Communicator& comm, const at::Tensor& tensor, const std::string& name) {
  on_host(tensor, [&](const at::Tensor& t) { nn::all_reduce(comm, t, collective::Op::average, {.name = name}); });
}

}  // namespace cohort::train
