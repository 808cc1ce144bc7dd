// Linear layers that the ranks of a tensor-parallel group share (Megatron-LM: Shoeybi et al. 2019), in pairs with something element-wise
// between them:
//   ColumnParallelLinear   y_r = x W_r^T + b_r     W and b cut by outputs; x whole, y_r this rank's outputs     backward: dx is all-reduced
//   RowParallelLinear      y = sum_r x_r W_r^T + b   W cut by inputs; x_r this rank's inputs, y whole           forward: y is all-reduced
// so that a pair costs one all-reduce each way. Until they are sharded they are torch's Linear, with its names and first values: a model is
// initialised whole, by one seed, and then cut, and n ranks begin with what one rank would.
//   auto specs = shard_linears(model.root(), tp);     // which box of which parameter is here now
// Owner: the module borrows the communicator (region.h). Threads: one. Failure: Kind::usage naming the parameter that cannot be cut evenly;
// as the Communicator's. A sharded layer cannot be cloned.
#pragma once
#include <torch/torch.h>

#include <string>

#include "cohort/collective/communicator.h"
#include "cohort/nn/parallel/shard_specs.h"

namespace cohort::nn {

class ParallelLinearImpl : public torch::nn::LinearImpl {
 public:
  ParallelLinearImpl(std::int64_t in, std::int64_t out, std::size_t cut_dimension) : LinearImpl(in, out), cut_(cut_dimension) {}
  // Keeps this rank's part. name: of this layer in the model.
  void shard(collective::Communicator& comm, const std::string& name, ShardSpecs& specs);
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device = std::nullopt) const override;

 protected:
  collective::Communicator* comm_ = nullptr;  // borrowed; none: the layer is whole

 private:
  const std::size_t cut_;  // of the weight [out, in]; the bias goes with the outputs
};

class ColumnParallelLinearImpl final : public ParallelLinearImpl {
 public:
  ColumnParallelLinearImpl(std::int64_t in, std::int64_t out) : ParallelLinearImpl(in, out, 0) {}
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(ColumnParallelLinear);

class RowParallelLinearImpl final : public ParallelLinearImpl {
 public:
  RowParallelLinearImpl(std::int64_t in, std::int64_t out) : ParallelLinearImpl(in, out, 1) {}
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(RowParallelLinear);

// Shards every parallel layer below root. With one rank they stay as they are.
ShardSpecs shard_linears(torch::nn::Module& root, collective::Communicator& comm);

}  // namespace cohort::nn

namespace cohort {
using nn::ColumnParallelLinear;
using nn::RowParallelLinear;
}  // namespace cohort
