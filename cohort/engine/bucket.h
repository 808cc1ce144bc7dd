// A bucket with the model's tensors on its memory: every param.grad and every parameter is a view into what sync::Bucket holds, or is
// copied in and out where it lies elsewhere (offloaded to the host, a sparse gradient, one that was dropped). Its memory is on the device
// of its parameters, and what is done with it there follows one stream. All torch of a bucket is here. Owner: Engine.
// Threads: as sync::Bucket's. Failure: Kind::usage for parameters that cannot be trained.
#pragma once
#include <ATen/core/Tensor.h>

#include <c10/core/StreamGuard.h>

#include <memory>
#include <optional>
#include <vector>

#include "cohort/cuda/runtime.h"
#include "cohort/optim/gpu_measure.h"
#include "cohort/sync/bucket.h"

namespace cohort::engine {

struct TrainedTensor {
  std::string name;
  at::Tensor param;  // a leaf; the same TensorImpl for ever, only its memory moves
  optim::Group group{};
  std::size_t order = 0;  // place among all parameters of the model
  bool is_box = false;    // these: sync::Member
  sync::Holders same_gradient{}, same_part{};
};

class Bucket final : public sync::Bucket {
 public:
  Bucket(int index, const std::vector<TrainedTensor>& tensors, collective::Communicator& comm, sync::Placement placement = {},
         sync::BufferPool* pool = nullptr, const sync::Cutting& cutting = {});

  const at::Tensor& param(std::size_t member) const { return params_[member]; }
  const std::vector<at::Tensor>& params() const { return params_; }
  void attach();                  // every param.grad is its view again: zero_grad() may have dropped it; one from elsewhere is copied in
  void take(std::size_t member);  // Extent::while_used: param.grad moves in, added to what came since the last reduction
  void gather();                  // before the reduction: all are in place, those that did not come are zero
  void own_parameters(const optim::Optimizer& rule, collective::Communicator& comm);
  // torch::load() and set_data() give parameters memory of their own, which is not what the rule updates and peers read.
  void refuse_parameters_elsewhere() const;
  void attach_parameters();       // they lie here again, with the values that they have there
  void copy_to_device() const;    // a model on a device of its own: its copies are as fresh as what lies here ..
  void copy_from_device() const;  // .. and the other way
  void rebase(const collective::Region& fresh) override;

  // --- on a GPU
  bool on_gpu() const { return device().kind == DeviceKind::cuda; }
  void follow_stream();  // from now on its work is enqueued where the calling thread's is
  const std::optional<c10::Stream>& stream() const { return stream_; }
  optim::GpuMeasure& gpu_measure(bool of_reduced) const;  // of this rank's own gradients, of the reduced ones

 private:
  void move_in(std::size_t member);
  bool lies_here(std::size_t member) const;
  at::Tensor gradient_view(std::size_t member) const;
  at::Tensor parameter_view(std::size_t member) const;
  bool pooled() const { return placement().gathers_gradients(); }

  const std::vector<at::Tensor> params_;
  std::optional<c10::Stream> stream_;
  mutable std::unique_ptr<optim::GpuMeasure> measures_[2];
};

// This thread works on the bucket's stream while it lives, torch's operators and ours.
class OnStreamOf {
 public:
  explicit OnStreamOf(const Bucket& bucket);

 private:
  c10::OptionalStreamGuard torch_;
  cuda::OnStream ours_;
};
// torch's current stream of that device, as ours are named; the CPU has none.
cuda::Stream torch_stream(Device device);

using Buckets = std::vector<std::unique_ptr<Bucket>>;

at::Tensor borrowed(const Piece& values);  // flat; good as long as the memory is

}  // namespace cohort::engine
