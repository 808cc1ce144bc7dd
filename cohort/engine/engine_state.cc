// What an engine holds, for those who save and load it.
#include "cohort/engine/engine.h"
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
  const auto names = rule_->state_names();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& b = *buckets_[bucket_of_[i]];
    const auto& m = b.members()[place_in_[i]];
    const auto own = b.owned(m);
    if (own.count == 0) continue;
    const auto first = static_cast<std::int64_t>(own.first), count = static_cast<std::int64_t>(own.count);
    visit(m.name, "", m.param.sizes(), first, count, b.own_parameter(m));
    for (std::size_t k = 0; k < names.size(); ++k) visit(m.name, names[k], m.param.sizes(), first, count, b.own_state(m, k));
  }
}

void Engine::adopted() {
  if (!rule_) return;
  for (const auto& b : buckets_) {
    strategy_->publish(*b, {&comm_, {}});
    if (stage() > 0) continue;
    for (const auto& m : b->members()) {
      nn::broadcast(comm_, b->own_parameter(m), Rank{0}, {.name = m.name});
      for (std::size_t k = 0; k < rule_->state_names().size(); ++k) nn::broadcast(comm_, b->own_state(m, k), Rank{0}, {.name = m.name});
    }
  }
}

}  // namespace cohort::engine
