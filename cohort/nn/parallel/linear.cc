#include "cohort/nn/parallel/linear.h"

#include "cohort/nn/ops/linear.h"
#include "cohort/nn/parallel/region.h"

namespace cohort::nn {
namespace {

// In place: who holds the parameter goes on holding it.
void cut(const at::Tensor& parameter, std::size_t dimension, collective::Communicator& comm, const std::string& name, ShardSpecs& specs) {
  const ShardSpec spec = cut_evenly(name, parameter.sizes().vec(), dimension, comm.rank().value, comm.size());
  const auto d = static_cast<std::int64_t>(dimension);
  const at::NoGradGuard no_grad;
  at::Tensor(parameter).set_data(
      parameter.detach().narrow(d, spec.box.first[dimension], spec.box.sizes[dimension]).clone(at::MemoryFormat::Contiguous));
  specs.insert_or_assign(name, spec);
}

}  // namespace

void ParallelLinearImpl::shard(collective::Communicator& comm, const std::string& name, ShardSpecs& specs) {
  if (comm_ != nullptr) throw_failure(Kind::usage, "{} is sharded already", name);
  if (comm.size() == 1) return;
  cut(weight, cut_, comm, name + ".weight", specs);
  if (cut_ == 0 && bias.defined()) cut(bias, 0, comm, name + ".bias", specs);
  comm_ = &comm;
}

std::shared_ptr<torch::nn::Module> ParallelLinearImpl::clone(const std::optional<torch::Device>&) const {
  throw_failure(Kind::usage, "a tensor-parallel layer cannot be cloned: its ranks compute together");
}

at::Tensor ColumnParallelLinearImpl::forward(const at::Tensor& x) {
  return nn::linear(*this, comm_ == nullptr ? x : copy_to_region(x, *comm_));
}

at::Tensor RowParallelLinearImpl::forward(const at::Tensor& x) {
  if (comm_ == nullptr) return nn::linear(*this, x);
  const at::Tensor sum = reduce_from_region(torch::linear(x, weight), *comm_);
  return bias.defined() ? sum + bias.to(sum.scalar_type()) : sum;  // once, not by every rank
}

ShardSpecs shard_linears(torch::nn::Module& root, collective::Communicator& comm) {
  ShardSpecs specs;
  for (const auto& module : root.named_modules("", false))
    if (auto* layer = dynamic_cast<ParallelLinearImpl*>(module.value().get())) layer->shard(comm, module.key(), specs);
  return specs;
}

}  // namespace cohort::nn
