#include "cohort/engine/engine.h"

#include <fmt/format.h>
#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "cohort/base/heap.h"
#include "cohort/engine/parameter_gatherer.h"
#include "cohort/nn/unshard/unsharder.h"
#include "cohort/sync/comm_dtype.h"

namespace cohort::engine {

struct Engine::Hook final : torch::autograd::PostAccumulateGradHook {
  Hook(Engine& e, std::size_t i) : engine(e), index(i) {}
  void operator()(const at::Tensor&) override { engine.on_gradient(index); }
  Engine& engine;
  const std::size_t index;
};

namespace {

void check(const std::vector<Parameter>& parameters, bool host) {
  for (const auto& p : parameters) {
    if (!p.tensor.is_leaf()) throw_failure(Kind::usage, "parameter {} is not a leaf: pass the tensor that the module registered", p.name);
    if (!p.tensor.device().is_cpu() && !host)
      throw_failure(Kind::usage, "parameter {} is on {}: gradients and updates are on the host, so use sync=zero(stage=2, offload=host)",
                    p.name, p.tensor.device().str());
    if (torch::autograd::impl::post_acc_grad_hooks(p.tensor))
      throw_failure(Kind::usage, "parameter {} has a hook for its gradient already: does another engine train it?", p.name);
  }
}

std::vector<Parameter> trainable(std::vector<Parameter> all) {
  std::unordered_set<const void*> seen;
  std::erase_if(all, [&](const Parameter& p) {
    return !p.tensor.requires_grad() || p.group.frozen || !seen.insert(p.tensor.unsafeGetTensorImpl()).second;
  });
  if (all.empty()) throw_failure(Kind::usage, "no parameter requires a gradient: there is nothing to train");
  return all;
}

}  // namespace

void assign_units(const nn::Model& model, std::vector<Parameter>& parameters) {
  nn::NamedTensors named;
  for (const auto& p : parameters) named.emplace_back(p.name, p.tensor);
  const auto units = nn::assign_units(model, named);
  for (std::size_t u = 0; u < units.size(); ++u)
    for (const std::size_t i : units[u]) parameters[i].unit = static_cast<int>(u);
}

namespace {

bool spans_hosts(const collective::Communicator& comm, int ranks_here) {
  return ranks_here < comm.size() && comm.transport() != "shm" && comm.transport() != "loopback";
}

EngineOptions for_the_links(EngineOptions o, bool far) {
  if (far && o.far_bucket > 0 && o.bucket > 0) o.bucket = std::min(o.bucket, o.far_bucket);
  return o;
}

}  // namespace

Engine::Engine(collective::Communicator& comm, std::vector<Parameter> parameters, EngineOptions options,
               std::unique_ptr<optim::Optimizer> rule, int cores, int ranks_here)
    : comm_(comm),
      options_(for_the_links(std::move(options), spans_hosts(comm, ranks_here))),
      parameters_(trainable(std::move(parameters))),
      rule_(std::move(rule)),
      strategy_(sync::with_comm_dtype(sync::make(options_.strategy), options_.comm_dtype, options_.comm_sum_dtype == CommSumDtype::fp32)),
      stage_(sharding().stage),
      lanes_(comm_, buckets_, arrivals_, context(), stage_ >= 2) {
  check(parameters_, sharding().host);
  if (options_.early_update && !rule_) throw_failure(Kind::usage, "early_update without an optimizer: there is nothing to update early");
  if (stage() > 0 && !rule_) throw_failure(Kind::usage, "sync={} without an optimizer: there is no update to shard", options_.strategy);
  if (options_.early_update && rule_->needs().rounds > 0)
    throw_failure(Kind::usage, "early_update with {}: it needs the size of whole tensors before it updates a part; turn off early_update",
                  rule_->spec());
  if (options_.early_update && has_buddy())
    throw_failure(Kind::usage, "early_update with {}: a step in which a rank is lost could not be finished; turn off one of them",
                  options_.strategy);
  if (options_.early_update && options_.clip_norm > 0)
    throw_failure(Kind::usage, "early_update updates before the norm of the whole gradient is known: turn off it or clip_norm");
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});  // gradients come from the back of the model to its front
  if (stage() >= 2) pool_ = std::make_unique<sync::BufferPool>(comm_);
  make_buckets(order);
  malloc_trim(0);  // what parameters leave behind would stay with this process, in pieces
  keep_freed_memory();
  arrivals_.clear_touched(parameters_.size());
  lanes_.open(choose_lanes(options_.lanes, cores, ranks_here, buckets_.size(), spans_hosts(comm_, ranks_here)), options_.lanes >= 0);
  if (stage() >= 3) open_gatherer();
  for (std::size_t i = 0; i < parameters_.size(); ++i)  // last, because a failure above would leave them on the tensors
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor, std::make_unique<Hook>(*this, i));
}

Engine::~Engine() {
  unsharder_.reset();
  gatherer_.reset();
  lanes_.close();
  for (auto& p : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(p.tensor, nullptr);
}

void Engine::open_gatherer() {
  std::vector<const sync::Bucket*> sharded;
  std::vector<nn::Unit> units;
  for (const auto& b : buckets_) {
    if (b->sharding().stage < 3) continue;
    nn::Unit unit{.name = b->name(), .members = {}, .bytes = b->bytes(), .on_device = b->sharding().host};
    for (const auto& m : b->members()) unit.members.push_back({m.name, m.param, m.first * c10::elementSize(b->type())});
    sharded.push_back(b.get());
    units.push_back(std::move(unit));
  }
  if (sharded.empty())
    throw_failure(Kind::usage,
                  "sync={} shards parameters block by block, and no parameter is in a block: name the model's blocks, or take "
                  "stage 2",
                  options_.strategy);
  gatherer_ = std::make_unique<ParameterGatherer>(comm_, std::move(sharded), lanes_.empty() ? nullptr : comm_.split(0));
  unsharder_ = std::make_unique<nn::Unsharder>(*gatherer_, std::move(units));
  malloc_trim(0);
}

}  // namespace cohort::engine
