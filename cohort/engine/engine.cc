#include "cohort/engine/engine.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "cohort/sync/narrow.h"

namespace cohort::engine {

struct Engine::Hook final : torch::autograd::PostAccumulateGradHook {
  Hook(Engine& e, std::size_t i) : engine(e), index(i) {}
  void operator()(const at::Tensor&) override { engine.arrived(index); }
  Engine& engine;
  const std::size_t index;
};

namespace {

void check(const std::vector<Parameter>& parameters) {
  for (const auto& p : parameters) {
    if (!p.tensor.is_leaf()) throw_failure(Kind::usage, "parameter {} is not a leaf: hand over the tensor the module holds", p.name);
    if (!p.tensor.device().is_cpu())
      throw_failure(Kind::usage, "parameter {} is on {}: the engine trains on the CPU", p.name, p.tensor.device().str());
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

Engine::Engine(collective::Communicator& comm, std::vector<Parameter> parameters, EngineOptions options,
               std::unique_ptr<optim::Optimizer> rule, int cores, int ranks_here)
    : comm_(comm),
      options_(std::move(options)),
      parameters_(trainable(std::move(parameters))),
      rule_(std::move(rule)),
      strategy_(sync::narrowed(sync::make(options_.strategy), options_.wire, options_.wire_sum == WireSum::fp32)) {
  check(parameters_);
  if (options_.early_update && !rule_) throw_failure(Kind::usage, "early_update without an optimizer: there is nothing to update early");
  if (options_.early_update && options_.clip_norm > 0)
    throw_failure(Kind::usage, "early_update updates before the norm of the whole gradient is known: turn off it or clip_norm");
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});  // gradients come from the back of the model to its front
  make_buckets(order);
  arrived_.assign(parameters_.size(), false);
  touched_.assign(parameters_.size(), false);
  open_lanes(choose_lanes(options_.lanes, cores, ranks_here, buckets_.size()));
  for (std::size_t i = 0; i < parameters_.size(); ++i)  // last, because nobody would take them off after a failure above
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor, std::make_unique<Hook>(*this, i));
}

Engine::~Engine() {
  lanes_.clear();
  for (auto& p : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(p.tensor, nullptr);
}

// Every rank opens as many lanes as the one with the fewest: hosts may differ in cores.
void Engine::open_lanes(LaneChoice mine) {
  std::int32_t fewest = comm_.size() == 1 && options_.lanes < 0 ? 0 : mine.lanes;
  comm_.all_reduce(collective::piece(std::span(&fewest, 1)), collective::Op::min, {.name = "number of lanes"});
  lanes_choice_ = std::move(mine);
  if (fewest < lanes_choice_.lanes)
    lanes_choice_ = {fewest, comm_.size() == 1 ? "no lane: a single rank has nothing to carry"
                                               : fmt::format("{} as on the rank with the fewest", fewest)};
  for (int i = 0; i < lanes_choice_.lanes; ++i)
    lanes_.push_back(std::make_unique<Lane>(i, comm_.split(0), Crew{*strategy_, rule_.get(), options_.early_update, options_.norms}));
}

void Engine::make_buckets(const std::vector<std::size_t>& order) {
  std::vector<PlanTensor> tensors;
  for (const std::size_t i : order)
    tensors.push_back({parameters_[i].tensor.nbytes(), static_cast<int>(parameters_[i].tensor.scalar_type())});
  const auto plan = plan_buckets(tensors, options_.first_bucket, options_.bucket);
  std::vector<std::unique_ptr<sync::Bucket>> fresh;
  std::vector<std::size_t> bucket_of(parameters_.size());
  for (const auto& picked : plan) {
    std::vector<sync::Member> members;
    for (const std::size_t k : picked) {
      const Parameter& p = parameters_[order[k]];
      members.push_back({.name = p.name, .param = p.tensor, .group = p.group, .order = order[k]});
      bucket_of[order[k]] = fresh.size();
    }
    fresh.push_back(std::make_unique<sync::Bucket>(static_cast<int>(fresh.size()), std::move(members), comm_));
    if (rule_) fresh.back()->own_parameters(*rule_);
  }
  const std::size_t states = rule_ ? rule_->state_names().size() : 0;
  for (const auto& old : buckets_)  // the state of what is trained already moves along
    for (const auto& m : old->members())
      for (const auto& to : fresh[bucket_of[m.order]]->members())
        for (std::size_t k = 0; to.order == m.order && k < states; ++k) fresh[bucket_of[m.order]]->state(to, k).copy_(old->state(m, k));
  buckets_ = std::move(fresh);
  bucket_of_ = std::move(bucket_of);
  left_.assign(buckets_.size(), 0);
}

void Engine::each_state(const std::function<void(const std::string&, const std::string&, const at::Tensor&)>& visit) const {
  if (!rule_) return;
  const auto names = rule_->state_names();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (const auto& m : buckets_[bucket_of_[i]]->members())
      for (std::size_t k = 0; m.order == i && k < names.size(); ++k) visit(m.name, names[k], buckets_[bucket_of_[i]]->state(m, k));
}

}  // namespace cohort::engine
