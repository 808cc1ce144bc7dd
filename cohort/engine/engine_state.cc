// What an engine holds, for those who save and load it.
#include <ATen/core/grad_mode.h>

#include "cohort/engine/engine.h"
#include "cohort/engine/gathering.h"
#include "cohort/nn/residency.h"
#include "cohort/nn/tensor.h"

namespace cohort::engine {

void Engine::each_state(const std::function<void(const std::string&, const std::string&, const at::Tensor&)>& visit) const {
  if (!rule_) return;
  if (shards_state())
    throw_failure(Kind::usage, "strategy {}: no rank has the whole state of the optimizer; each_shard() shows what this one has",
                  options_.strategy);
  const auto names = rule_->state_names();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& b = *buckets_[bucket_of_[i]];
    for (std::size_t k = 0; k < names.size(); ++k) visit(parameters_[i].name, names[k], b.state(b.members()[place_in_[i]], k));
  }
}

void Engine::each_shard(const VisitShard& visit) const {
  if (!rule_) throw_failure(Kind::usage, "each_shard() without an optimizer: parameters are the caller's own");
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

void Engine::each_kept(const VisitShard& visit) const {
  if (has_buddy()) visit_pieces(visit, true);
}

void Engine::visit_pieces(const VisitShard& visit, bool kept) const {
  const auto names = rule_->state_names();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& b = *buckets_[bucket_of_[i]];
    const auto& m = b.members()[place_in_[i]];
    const auto range = kept ? b.kept(m) : b.owned(m);
    if (range.count == 0) continue;
    const auto first = static_cast<std::int64_t>(range.first), count = static_cast<std::int64_t>(range.count);
    visit(m.name, "", m.param.sizes(), first, count, kept ? b.kept_parameter(m) : b.own_parameter(m));
    for (std::size_t k = 0; k < names.size(); ++k)
      visit(m.name, names[k], m.param.sizes(), first, count, kept ? b.kept_state(m, k) : b.own_state(m, k));
  }
}

void Engine::adopted() {
  if (!rule_) return;
  if (residency_) residency_->reset();
  for (const auto& b : buckets_) {
    b->take_in();
    strategy_->publish(*b, {&comm_, {}});
    b->copy_to_buddy(comm_);
    if (stage() > 0) continue;
    for (const auto& m : b->members()) {
      nn::broadcast(comm_, b->own_parameter(m), Rank{0}, {.name = m.name});
      for (std::size_t k = 0; k < rule_->state_names().size(); ++k) nn::broadcast(comm_, b->own_state(m, k), Rank{0}, {.name = m.name});
    }
  }
}

void Engine::take_back(Rank lost) {
  for (const auto& b : buckets_) b->take_back(comm_, lost);
  adopted();
}

nn::Residency& Engine::residency() const {
  if (!residency_) throw_failure(Kind::usage, "strategy {}: parameters are always there; only stage 3 takes them away", options_.strategy);
  return *residency_;
}

nn::Around Engine::around(nn::Around inner) const { return residency_ ? residency_->around(std::move(inner)) : inner; }

std::size_t Engine::bytes_in_flight() const { return (pool_ ? pool_->bytes() : 0) + (gathering_ ? gathering_->bytes() : 0); }

void Engine::make_whole() {
  if (!residency_) return;
  const at::NoGradGuard no_grad;
  std::vector<std::pair<at::Tensor, at::Tensor>> whole;
  for (const auto& b : buckets_) {
    if (b->sharding().stage < 3) continue;
    const auto hold = residency_->hold(b->members()[0].param);
    for (const auto& m : b->members()) whole.emplace_back(m.param, m.param.detach().clone());
  }
  residency_.reset();
  for (auto& [parameter, values] : whole) parameter.set_data(values);
}

}  // namespace cohort::engine
