// backend: nccl: torch's own process group for GPUs. It carries GPU memory only; what lies in CPU memory is done by the native backend. A
// collective returns when it is enqueued on the stream (Call::stream, else torch's current one), so a deadline ends the wait for the other
// ranks to come, not the work on the GPU: that is torch's own watchdog's business. min and max of reals and int16 are refused: NCCL loses
// NaN in the first and does not know the second. Tried with one rank only; see docs/backends.md.
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "cohort/collective/backends/link_store.h"
#include "cohort/collective/backends/torch_backend.h"

namespace cohort::collective {
namespace {

bool real(Dtype dtype) { return dtype == Dtype::f16 || dtype == Dtype::bf16 || dtype == Dtype::f32 || dtype == Dtype::f64; }

class Nccl final : public TorchBackend {
 public:
  explicit Nccl(const BackendContext& context) : TorchBackend(context.rank, context.size()) {
    if (c10::cuda::device_count() == 0)
      throw_failure(Kind::usage, "backend: nccl: this process sees no GPU; use backend: native, mpi or gloo");
    device_ = static_cast<c10::DeviceIndex>(context.options.local_rank % c10::cuda::device_count());
    c10::cuda::set_device(device_);  // before anything opens another; two ranks on one GPU are refused by NCCL, in its words
    const auto store = c10::make_intrusive<LinkStore>(context);
    in_torch(fmt::format("opening {}", text()), [&] {
      const auto options = c10d::ProcessGroupNCCL::Options::create();
      options->timeout = std::chrono::ceil<std::chrono::milliseconds>(std::min<Clock::duration>(context.wait_options.deadline.left(), 24h));
      group_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, context.rank, context.size(), options);
      // The ranks of a group connect at its first operation: now, while the store is still open.
      std::vector<at::Tensor> one{at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(at::kCUDA, device_))};
      group_->allreduce(one)->wait();
      c10::cuda::getCurrentCUDAStream(device_).synchronize();
    });
    store->close();
  }

  ~Nccl() override {
    try {
      group_->shutdown();              // else torch warns of what may leak
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the group goes either way
    }
  }

  std::string text() const override { return fmt::format("nccl of torch on cuda:{}", device_); }

  bool carries(Collective collective, Dtype dtype, Op op, Device device, std::size_t /*largest*/) const override {
    if (device.kind != DeviceKind::cuda) return false;
    switch (collective) {
      case Collective::all_reduce:
      case Collective::reduce_scatter:
      case Collective::reduce: return dtype != Dtype::i16 && (!real(dtype) || op == Op::sum || op == Op::average || op == Op::product);
      case Collective::all_gather:
      case Collective::broadcast:
      case Collective::all_to_all: return true;
      default: return false;
    }
  }

  void scale(Piece data, double factor, void* stream) override {
    const auto held = on(stream);
    in_torch("scaling", [&] { return tensor_of(data).mul_(factor); });
  }

  bool abort() noexcept override {
    try {
      group_->abort();
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

 protected:
  c10d::Backend& group() override { return *group_; }
  std::shared_ptr<void> on(void* stream) override {
    if (stream == nullptr) return nullptr;
    return std::make_shared<c10::cuda::CUDAStreamGuard>(c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream), device_));
  }
  void wait(const Work& work, const WaitOptions& /*wait_options*/) override { work->wait(); }  // the stream waits, not this thread

 private:
  c10::DeviceIndex device_ = 0;  // the local rank's, of those that this process sees
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

std::unique_ptr<Backend> open_nccl(const BackendContext& context) { return std::make_unique<Nccl>(context); }

}  // namespace
}  // namespace cohort::collective

COHORT_BACKEND_PLUGIN(nccl, cohort::collective::open_nccl)
