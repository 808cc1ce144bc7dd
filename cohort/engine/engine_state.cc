// What an engine holds, for those who save, load, carry and compare it.
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "cohort/engine/engine.h"
#include "cohort/engine/parameter_gatherer.h"
#include "cohort/engine/publisher.h"
#include "cohort/engine/side.h"
#include "cohort/nn/tensor.h"
#include "cohort/nn/unshard/unsharder.h"
#include "cohort/sync/elements.h"

namespace cohort::engine {
namespace {

constexpr std::string_view kModel = "model", kOptimizer = "optimizer", kResidual = "residual", kStrategy = "strategy";

// A state of the parameter of which `p` is a run: the same elements, or all of a state of another shape.
StateItem state_item(const StateItem& p, const optim::StateSpec& spec, const Piece& values) {
  const bool alike = spec.shape == (p.box != nullptr ? p.box->sizes : p.shape);
  return {.group = kOptimizer,
          .parameter = p.parameter,
          .state = spec.name,
          .shape = alike ? p.shape : spec.shape,
          .run = alike ? p.run : ElementRange{0, values.count},
          .values = values,
          .share = p.share,
          .merge = p.merge,
          .buddy = p.buddy,
          .box = alike ? p.box : nullptr,
          .first = p.first};
}

// A number that is kept of a whole tensor.
StateItem of_one_number(const StateItem& item) {
  static const Shape kOne{1};
  return {.group = item.group,
          .parameter = item.parameter,
          .state = item.state,
          .shape = kOne,
          .run = {0, 1},
          .values = item.values,
          .share = item.share,
          .merge = item.merge,
          .buddy = item.buddy,
          .box = nullptr,
          .first = item.first};
}

}  // namespace

void Engine::visit(StateVisitor& visitor) const {
  visit([&](const StateItem& item) { visitor.tensor(item); });
}

void Engine::visit(const std::function<void(const StateItem&)>& call) const {
  if (!rule_) return;  // the caller has the parameters
  if (publisher_) publisher_->settle();
  const cuda::OnStream on(gpu_stream());
  if (drifted_.empty()) strategy_->settle();  // while a Consensus lives parameters are that, and a late answer is not for it
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    visit_parameter(call, i);
    visit_residuals(call, i);
  }
}

// The parameter, the rule's state of it and what the strategy keeps beside it.
void Engine::visit_parameter(const std::function<void(const StateItem&)>& call, std::size_t parameter) const {
  const Bucket& b = *buckets_[bucket_of_[parameter]];
  const sync::Member& m = b.members()[place_in_[parameter]];
  if (b.owned(m).count == 0) return;
  const bool own = drifts();
  StateItem item{.group = kModel,
                 .parameter = m.name,
                 .state = {},
                 .shape = m.is_box ? parameters_[parameter].shard.whole : m.shape,
                 .run = b.owned(m),
                 .values = mirror_.of(b.owned_parameter(m))};
  item.share = b.placement().sharded() ? Share::cut : own ? Share::each : Share::identical;
  item.merge = own ? Merge::mean : Merge::copy;
  item.first = item.share == Share::each || m.same_part.me == 0;
  if (m.is_box) item.box = &parameters_[parameter].shard.box;
  if (!drifted_.empty()) item.values = b.all_in(drifted_[bucket_of_[parameter]]).part(m.first, m.count);
  call(item);
  for (std::size_t k = 0; k < b.specs(m).size(); ++k) call(state_item(item, b.specs(m)[k], mirror_.of(b.owned_state(m, k))));
  item.group = kStrategy;
  for (const auto& slot : strategy_->slots()) {
    if (!slot.kept) continue;
    item.state = slot.name;
    item.share = slot.share;
    item.first = item.share == Share::each || m.same_part.me == 0;
    item.merge = slot.merge;
    item.values = b.slot(slot.name, m);
    call(slot.per_tensor ? of_one_number(item) : item);
  }
}

// What this rank has not sent of its gradients, and of the sums that it hands out; its velocity, and what all ranks begin a step with.
void Engine::visit_residuals(const std::function<void(const StateItem&)>& call, std::size_t parameter) const {
  const Bucket& b = *buckets_[bucket_of_[parameter]];
  if (b.coded() == nullptr) return;
  const sync::Member& m = b.members()[place_in_[parameter]];
  const auto visit_one = [&](codec::Feedback* feedback, const sync::Range& range, std::string_view name, Merge merge) {
    const sync::Range both = range.overlap(m.range());
    if (feedback == nullptr || both.count == 0) return;
    call({.group = kResidual,
          .parameter = m.name,
          .state = name,
          .shape = m.shape,
          .run = {both.first - m.first, both.count},
          .values = feedback->values().part(both.first - range.first, both.count),
          .share = Share::each,
          .merge = merge});
  };
  visit_one(b.coded()->sent(), {0, b.count()}, "sent", Merge::sum);
  if (codec_->momentum())
    call({.group = kResidual,
          .parameter = m.name,
          .state = "velocity",
          .shape = m.shape,
          .run = {0, m.count},
          .values = b.coded()->sent()->velocity().part(m.first, m.count),
          .share = Share::each,
          .merge = Merge::sum});
  const std::size_t tensor = place_in_[parameter];
  if (const Piece memory = b.coded()->memory(tensor); memory.count > 0) {
    const Shape shape = b.coded()->memory_shape(tensor);
    call({.group = kResidual,
          .parameter = m.name,
          .state = "memory",
          .shape = shape,
          .run = {0, memory.count},
          .values = memory,
          .share = Share::each,
          .merge = Merge::copy});
  }
  visit_one(b.coded()->sum(), b.coded()->owned(), "sum", Merge::copy);
}

double Engine::residual_weight() const {
  for (const auto& b : buckets_)
    if (b->coded() != nullptr && b->coded()->sent() != nullptr) return b->coded()->sent()->weight();
  return 0;
}

void Engine::set_residual_weight(double weight) const {
  for (const auto& b : buckets_)
    for (codec::Feedback* f : {b->coded() ? b->coded()->sent() : nullptr, b->coded() ? b->coded()->sum() : nullptr})
      if (f != nullptr) f->set_weight(weight);
}

Disagreement Engine::disagreement() const {
  Disagreement found;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& b = *buckets_[i];
    if (b.device().kind != DeviceKind::cpu) {
      found.known = false;
      continue;
    }
    if (b.coded() != nullptr && b.coded()->sent() != nullptr) found.squared_residual += sync::squared_norm(b.coded()->sent()->values());
    for (const sync::Member& m : b.members()) {
      if (drifted_.empty()) break;
      found.squared_norm += sync::squared_norm(b.owned_parameter(m));
      found.squared_distance += sync::squared_distance(b.all_in(drifted_[i]).part(m.first, m.count), b.owned_parameter(m));
    }
  }
  return found;
}

std::vector<std::string> Engine::trained() const {
  std::vector<std::string> names;
  for (const auto& b : buckets_)
    for (const auto& m : b->members())
      if (m.count > 0) names.push_back(m.name);
  return names;
}

void Engine::visit_buddy(const std::function<void(const StateItem&)>& call) const {
  if (!has_buddy()) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Bucket& b = *buckets_[bucket_of_[i]];
    const sync::Member& m = b.members()[place_in_[i]];
    StateItem item{
        .group = kModel, .parameter = m.name, .state = {}, .shape = m.shape, .run = b.buddy().range(m), .values = b.buddy().parameter(m)};
    item.share = Share::cut;
    item.buddy = true;
    if (item.run.count == 0) continue;
    call(item);
    for (std::size_t k = 0; k < b.specs(m).size(); ++k) call(state_item(item, b.specs(m)[k], b.buddy().state(m, k)));
  }
}

void Engine::publish_loaded_state() {
  if (!rule_) return;
  if (publisher_) publisher_->settle();
  if (unsharder_) unsharder_->reset();
  const cuda::OnStream on(gpu_stream());
  mirror_.upload();
  for (const auto& b : buckets_) {
    b->copy_from_device();
    strategy_->publish_loaded(*b, wire(*b));
    b->copy_to_device();
    b->buddy().copy(comm_);
  }
  visit([&](const StateItem& item) {
    if (item.share == Share::identical && item.box == nullptr) comm_.broadcast(item.values, Rank{0}, {.name = item.parameter});
  });
  mirror_.upload();
}

bool Engine::has_finite_model() const {
  bool finite = true;
  visit([&](const StateItem& item) { finite = finite && (item.group != kModel || sync::all_finite(item.values)); });
  return finite;
}

void Engine::merge_drifted_state(bool counts) {
  if (!drifts()) return;
  constexpr std::int64_t kNotFinite = -1, kNewcomer = -2;
  std::vector<std::int64_t> rounds(static_cast<std::size_t>(comm_.size()));
  std::int64_t mine = !counts ? kNewcomer : has_finite_model() ? rounds_ : kNotFinite;
  comm_.all_gather(collective::piece(std::span(&mine, 1)), collective::piece(std::span(rounds)), {.name = "rounds that ranks have ended"});
  const std::int64_t most = *std::max_element(rounds.begin(), rounds.end());
  const std::int64_t fewest = strategy_->semantics().guarantee == sync::Guarantee::sync_round ? most : std::min<std::int64_t>(most, 0);
  const auto in = [&](std::int64_t ended) { return ended > kNewcomer && ended >= fewest; };
  const auto with = std::count_if(rounds.begin(), rounds.end(), in);
  const Rank first{static_cast<int>(std::find(rounds.begin(), rounds.end(), most) - rounds.begin())};
  visit([&](const StateItem& item) {
    if (item.group == kStrategy && item.share == Share::identical) return comm_.broadcast(item.values, first, {.name = item.parameter});
    if (item.share != Share::each || item.merge != Merge::mean) return;
    if (!in(mine)) sync::fill(item.values, 0);
    comm_.all_reduce(item.values, collective::Op::sum, {.name = item.parameter});
    sync::scale(item.values, 1.0 / static_cast<double>(with));
  });
  begin_own_slots_anew();
  rounds_ = most;
}

void Engine::restore_from_buddy(Rank lost) {
  for (const auto& b : buckets_) b->buddy().restore(comm_, lost);
  publish_loaded_state();
}

// --- where replicas drift

Consensus::Consensus(Engine& engine) : engine_(engine) { engine_.enter_consensus(); }
Consensus::~Consensus() { engine_.leave_consensus(); }

// First all of it, which may fail, then the swap: what was in the model lies in drifted_ until the end.
void Engine::enter_consensus() {
  quiesce();
  if (!drifts()) return;
  if (consensus_depth_ == 0) {
    strategy_->settle();
    std::vector<collective::Region> agreed;
    for (const auto& b : buckets_) {
      agreed.push_back(comm_.allocate(b->bytes()));
      strategy_->consensus(*b, b->all_in(agreed.back()), wire(*b));
    }
    drifted_ = std::move(agreed);
    swap_drifted();
  }
  ++consensus_depth_;
}

// What servers keep comes to the ranks, as all of them ask for it together.
void Engine::quiesce() {
  if (!strategy_->semantics().served) return;
  for (const auto& b : buckets_) strategy_->quiesce(*b, wire(*b));
}

void Engine::swap_drifted() {
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    for (const auto& m : buckets_[i]->members())
      sync::swap(buckets_[i]->owned_parameter(m), buckets_[i]->all_in(drifted_[i]).part(m.first, m.count));
}

void Engine::adopt_consensus() {
  quiesce();
  if (!drifts()) return;
  enter_consensus();
  drifted_.clear();
  --consensus_depth_;
  begin_strategy_anew();
}

void Engine::begin_strategy_anew() {
  for (const auto& b : buckets_) strategy_->adopt(*b);
}

void Engine::begin_own_slots_anew() {
  for (const auto& b : buckets_) sync::begin_anew(*b, strategy_->slots());
}

void Engine::leave_consensus() {
  if (!drifts() || --consensus_depth_ > 0) return;
  swap_drifted();
  drifted_.clear();
}

void Engine::refuse_after_make_whole() const {
  if (!placement_.gathers_parameters() || unsharder_) return;
  throw_failure(
      Kind::usage,
      "sync={}: a step after make_whole(), which ended training: the parameters are ordinary tensors again, outside the optimizer. "
      "Evaluate and save the module as it is. To train on, do not call make_whole(): block() and Unsharder::Hold give the "
      "parameters for a while; or destroy this and make a new one of the module, with a fresh optimizer state",
      options_.strategy);
}

nn::Unsharder& Engine::unsharder() const {
  refuse_after_make_whole();
  if (!unsharder_) throw_failure(Kind::usage, "sync={}: parameters are never sharded; only zero(stage=3) shards them", options_.strategy);
  return *unsharder_;
}

bool Engine::wraps_blocks() const { return taps() || unsharder_ != nullptr || publisher_ != nullptr; }

nn::BlockWrapper Engine::block_wrapper(nn::BlockWrapper inner) const {
  if (publisher_) {
    gated_ = true;
    inner = publisher_->block_wrapper(std::move(inner), [this](const nn::Block& block) { return buckets_of(block); });
  }
  if (taps()) inner = side_->tap().block_wrapper(std::move(inner));
  return unsharder_ ? unsharder_->block_wrapper(std::move(inner)) : inner;
}

std::size_t Engine::bytes_in_flight() const { return (pool_ ? pool_->bytes() : 0) + (gatherer_ ? gatherer_->bytes() : 0); }

void Engine::make_whole() {
  await_parameters();
  if (!unsharder_) return;
  const at::NoGradGuard no_grad;
  std::vector<std::pair<at::Tensor, at::Tensor>> whole;
  for (const auto& b : buckets_) {
    if (!b->placement().gathers_parameters()) continue;
    const auto hold = unsharder_->hold(b->param(0));
    for (const auto& param : b->params()) whole.emplace_back(param, param.detach().clone());
  }
  unsharder_.reset();
  for (auto& [parameter, values] : whole) parameter.set_data(values);
}

}  // namespace cohort::engine
