// What an engine holds, for those who save and load it.
#include <ATen/core/grad_mode.h>

#include "cohort/engine/engine.h"
#include "cohort/engine/parameter_gatherer.h"
#include "cohort/nn/tensor.h"
#include "cohort/nn/unshard/unsharder.h"

namespace cohort::engine {

void Engine::each_state(const std::function<void(const std::string&, const std::string&, const at::Tensor&)>& visit) const {
  if (!rule_) return;
  if (shards_state())
    throw_failure(Kind::usage, "sync={}: no rank has the whole state of the optimizer; each_shard() visits what this one has",
                  options_.strategy);
  const auto names = rule_->state_names();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& b = *buckets_[bucket_of_[i]];
    for (std::size_t k = 0; k < names.size(); ++k) visit(parameters_[i].name, names[k], b.state(b.members()[place_in_[i]], k));
  }
}

void Engine::each_shard(const VisitShard& visit) const {
  if (!rule_) throw_failure(Kind::usage, "each_shard() without an optimizer: the caller has the parameters");
  if (stage() == 0 && comm_.rank() != Rank{0}) return;
  visit_pieces(visit, false);
}

std::vector<std::string> Engine::trained() const {
  std::vector<std::string> names;
  for (const auto& b : buckets_)
    for (const auto& m : b->members())
      if (m.count > 0) names.push_back(m.name);
  return names;
}

void Engine::each_buddy_shard(const VisitShard& visit) const {
  if (has_buddy()) visit_pieces(visit, true);
}

void Engine::visit_pieces(const VisitShard& visit, bool buddy) const {
  const auto names = rule_->state_names();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& b = *buckets_[bucket_of_[i]];
    const auto& m = b.members()[place_in_[i]];
    const auto range = buddy ? b.buddy_range(m) : b.owned(m);
    if (range.count == 0) continue;
    const auto first = static_cast<std::int64_t>(range.first), count = static_cast<std::int64_t>(range.count);
    visit(m.name, "", m.param.sizes(), first, count, buddy ? b.buddy_parameter(m) : b.owned_parameter(m));
    for (std::size_t k = 0; k < names.size(); ++k)
      visit(m.name, names[k], m.param.sizes(), first, count, buddy ? b.buddy_state(m, k) : b.owned_state(m, k));
  }
}

void Engine::publish_loaded_state() {
  if (!rule_) return;
  if (unsharder_) unsharder_->reset();
  for (const auto& b : buckets_) {
    b->copy_from_device();
    strategy_->publish_parameters(*b, {&comm_, {}});
    b->copy_to_buddy(comm_);
    if (stage() > 0) continue;
    for (const auto& m : b->members()) {
      nn::broadcast(comm_, b->owned_parameter(m), Rank{0}, {.name = m.name});
      for (std::size_t k = 0; k < rule_->state_names().size(); ++k) nn::broadcast(comm_, b->owned_state(m, k), Rank{0}, {.name = m.name});
    }
  }
}

void Engine::restore_from_buddy(Rank lost) {
  for (const auto& b : buckets_) b->restore_from_buddy(comm_, lost);
  publish_loaded_state();
}

void Engine::refuse_after_make_whole() const {
  if (stage() < 3 || unsharder_) return;
  throw_failure(
      Kind::usage,
      "sync={}: a step after make_whole(), which ended training: the parameters are ordinary tensors again, outside the optimizer. "
      "Evaluate and save the module as it is. To train on, do not call make_whole(): block() and Unsharder::Hold give the "
      "parameters for a while; or destroy this and make a new one of the module, with a fresh optimizer state",
      options_.strategy);
}

nn::Unsharder& Engine::unsharder() const {
  refuse_after_make_whole();
  if (!unsharder_) throw_failure(Kind::usage, "sync={}: parameters are never sharded; only stage 3 shards them", options_.strategy);
  return *unsharder_;
}

nn::BlockWrapper Engine::block_wrapper(nn::BlockWrapper inner) const {
  return unsharder_ ? unsharder_->block_wrapper(std::move(inner)) : inner;
}

std::size_t Engine::bytes_in_flight() const { return (pool_ ? pool_->bytes() : 0) + (gatherer_ ? gatherer_->bytes() : 0); }

void Engine::make_whole() {
  if (!unsharder_) return;
  const at::NoGradGuard no_grad;
  std::vector<std::pair<at::Tensor, at::Tensor>> whole;
  for (const auto& b : buckets_) {
    if (b->sharding().stage < 3) continue;
    const auto hold = unsharder_->hold(b->members()[0].param);
    for (const auto& m : b->members()) whole.emplace_back(m.param, m.param.detach().clone());
  }
  unsharder_.reset();
  for (auto& [parameter, values] : whole) parameter.set_data(values);
}

}  // namespace cohort::engine
