// Batch normalisation whose statistics are those of the whole batch, over all ranks: n ranks compute what one rank with all samples would.
//   y = (x - mean) / sqrt(var + eps) * weight + bias         mean, var per channel over all samples and positions of all ranks, N values
//   dx = weight / sqrt(var + eps) * (dy - S1 / N - xhat * S2 / N),   S1 = sum dy, S2 = sum dy * xhat, both over all ranks
//   dweight, dbias: this rank's share only; the engine adds them up like every other gradient.
// Batches of the ranks may be uneven, also empty. Forward costs one all-gather of 2 channels + 1 doubles (parts are merged by the
// count-weighted rule of Chan et al. 1979, which does not cancel), backward one all-reduce of 2 channels doubles.
// Without a communicator, and in evaluation, it is torch's BatchNorm: the zoo uses it everywhere, so that a model can be given one later.
// Owner: the module borrows the communicator, which must outlive forward and backward, and is used for nothing else (collectives run on the
// thread of forward and backward). Threads: one. Failure: Kind::usage for shapes, for one value per channel (its variance means nothing),
// for second derivatives, and as the Communicator's. Every rank must run every forward and backward.
#pragma once
#include <torch/torch.h>

#include <optional>

#include "cohort/collective/communicator.h"

namespace cohort::nn {

struct BatchNormOptions {
  std::int64_t features = 0;
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // none: running statistics are the plain average over all batches
  bool affine = true;
  bool track_running_stats = true;
};

// The tensors of a batch norm, under the names torch gives them. Undefined: not affine, not tracked.
struct BatchNormTensors {
  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};

class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl>, public BatchNormTensors {
 public:
  explicit SyncBatchNormImpl(std::int64_t features) : SyncBatchNormImpl(BatchNormOptions{.features = features}) {}
  explicit SyncBatchNormImpl(const BatchNormOptions& given) : options(given) { SyncBatchNormImpl::reset(); }
  // Takes over the tensors themselves, so that optimizers and checkpoints notice nothing.
  SyncBatchNormImpl(const BatchNormOptions& given, const BatchNormTensors& tensors) : options(given) { enter(tensors); }
  void reset() override;  // fresh tensors

  at::Tensor forward(const at::Tensor& x);  // [n, features, ...]
  void use(collective::Communicator* comm) { comm_ = comm; }
  collective::Communicator* communicator() const { return comm_; }

  BatchNormOptions options;

 private:
  void enter(const BatchNormTensors& tensors);
  double count_batch();  // returns the weight of this batch in the running statistics
  at::Tensor forward_synchronised(const at::Tensor& x);

  collective::Communicator* comm_ = nullptr;  // borrowed
};
TORCH_MODULE(SyncBatchNorm);

// Gives every SyncBatchNorm below root this communicator, and puts a SyncBatchNorm in the place of every torch BatchNorm1d, 2d, 3d that is
// reached through its parent (in a Sequential, or looked up by name). Returns how many now synchronise. A C++ member that holds the old
// module would go on calling it; that is refused before anything changes, naming the module: declare the member as nn::SyncBatchNorm
// instead.
int convert_sync_batchnorm(torch::nn::Module& root, collective::Communicator& comm);

}  // namespace cohort::nn

namespace cohort {
using nn::SyncBatchNorm;
}
