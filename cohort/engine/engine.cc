#include "cohort/engine/engine.h"

#include <fmt/format.h>
#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "cohort/base/heap.h"
#include "cohort/engine/gathering.h"
#include "cohort/nn/residency.h"
#include "cohort/sync/narrow.h"

namespace cohort::engine {

struct Engine::Hook final : torch::autograd::PostAccumulateGradHook {
  Hook(Engine& e, std::size_t i) : engine(e), index(i) {}
  void operator()(const at::Tensor&) override { engine.arrived(index); }
  Engine& engine;
  const std::size_t index;
};

namespace {

constexpr int kTypes = static_cast<int>(at::ScalarType::NumOptions);

void check(const std::vector<Parameter>& parameters, bool host) {
  for (const auto& p : parameters) {
    if (!p.tensor.is_leaf()) throw_failure(Kind::usage, "parameter {} is not a leaf: hand over the tensor the module holds", p.name);
    if (!p.tensor.device().is_cpu() && !host)
      throw_failure(Kind::usage, "parameter {} is on {}: gradients and updates are on the host, so say zero(stage=2, offload=host)", p.name,
                    p.tensor.device().str());
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

void share_out(const nn::Model& model, std::vector<Parameter>& parameters) {
  nn::NamedTensors named;
  for (const auto& p : parameters) named.emplace_back(p.name, p.tensor);
  const auto units = nn::share_out(model, named);
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
      strategy_(sync::narrowed(sync::make(options_.strategy), options_.wire, options_.wire_sum == WireSum::fp32)),
      stage_(sharding().stage) {
  check(parameters_, sharding().host);
  if (options_.early_update && !rule_) throw_failure(Kind::usage, "early_update without an optimizer: there is nothing to update early");
  if (stage() > 0 && !rule_)
    throw_failure(Kind::usage, "strategy {} without an optimizer: there is no update to share out", options_.strategy);
  if (options_.early_update && has_buddy())
    throw_failure(Kind::usage, "early_update with {}: a step that a rank is lost in could not be ended; turn off one of them",
                  options_.strategy);
  if (options_.early_update && options_.clip_norm > 0)
    throw_failure(Kind::usage, "early_update updates before the norm of the whole gradient is known: turn off it or clip_norm");
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});  // gradients come from the back of the model to its front
  if (stage() >= 2) pool_ = std::make_unique<sync::Pool>(comm_);
  make_buckets(order);
  malloc_trim(0);  // what parameters leave behind would stay with this process, in pieces
  keep_freed_memory();
  arrived_.assign(parameters_.size(), false);
  touched_.assign(parameters_.size(), false);
  open_lanes(choose_lanes(options_.lanes, cores, ranks_here, buckets_.size(), spans_hosts(comm_, ranks_here)));
  if (stage() >= 3) open_gathering();
  for (std::size_t i = 0; i < parameters_.size(); ++i)  // last, because nobody would take them off after a failure above
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor, std::make_unique<Hook>(*this, i));
}

Engine::~Engine() {
  residency_.reset();
  gathering_.reset();
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
  for (int i = 0; i < lanes_choice_.lanes; ++i) lanes_.push_back(std::make_unique<Lane>(i, comm_.split(0), crew()));
}

void Engine::open_gathering() {
  std::vector<const sync::Bucket*> held;
  std::vector<nn::Unit> units;
  for (const auto& b : buckets_) {
    if (b->sharding().stage < 3) continue;
    nn::Unit unit{.name = b->name(), .members = {}, .bytes = b->bytes(), .apart = b->sharding().host};
    for (const auto& m : b->members()) unit.members.push_back({m.name, m.param, m.first * c10::elementSize(b->type())});
    held.push_back(b.get());
    units.push_back(std::move(unit));
  }
  if (held.empty())
    throw_failure(Kind::usage,
                  "strategy {} shards parameters block by block, and no parameter is in a block: name the model's blocks, or take "
                  "stage 2",
                  options_.strategy);
  gathering_ = std::make_unique<Gathering>(comm_, std::move(held), lanes_.empty() ? nullptr : comm_.split(0));
  residency_ = std::make_unique<nn::Residency>(*gathering_, std::move(units));
  malloc_trim(0);
}

void Engine::make_buckets(const std::vector<std::size_t>& order) {
  std::vector<PlanTensor> tensors;
  const bool by_unit = stage() >= 3;  // a unit is a bucket
  for (const std::size_t i : order) {
    const int type = static_cast<int>(parameters_[i].tensor.scalar_type());
    tensors.push_back({parameters_[i].tensor.nbytes(), by_unit ? (parameters_[i].unit + 1) * kTypes + type : type});
  }
  std::vector<std::unique_ptr<sync::Bucket>> fresh;
  for (const auto& picked : plan_buckets(tensors, options_.first_bucket, by_unit ? ByteSize{0} : options_.bucket)) {
    std::vector<sync::Member> members;
    sync::Sharding shared = sharding();
    if (parameters_[order[picked[0]]].unit < 0) shared.stage = std::min(stage(), 2);
    for (const std::size_t k : picked) {
      const Parameter& p = parameters_[order[k]];
      members.push_back({.name = p.name, .param = p.tensor, .group = p.group, .order = order[k]});
    }
    fresh.push_back(std::make_unique<sync::Bucket>(static_cast<int>(fresh.size()), std::move(members), comm_, shared, pool_.get()));
    if (rule_) fresh.back()->own_parameters(*rule_, comm_);
  }
  const auto old = std::exchange(buckets_, std::move(fresh));
  const auto old_bucket = std::exchange(bucket_of_, {}), old_place = std::exchange(place_in_, {});
  index_buckets();
  if (old.empty() || !rule_) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i)  // the state of what is trained already moves along
    for (std::size_t k = 0; k < rule_->state_names().size(); ++k) {
      const auto& from = *old[old_bucket[i]];
      const auto& to = *buckets_[bucket_of_[i]];
      to.state(to.members()[place_in_[i]], k).copy_(from.state(from.members()[old_place[i]], k));
    }
}

void Engine::index_buckets() {
  bucket_of_.assign(parameters_.size(), 0);
  place_in_.assign(parameters_.size(), 0);
  left_.assign(buckets_.size(), 0);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (std::size_t k = 0; k < buckets_[b]->members().size(); ++k) {
      bucket_of_[buckets_[b]->members()[k].order] = b;
      place_in_[buckets_[b]->members()[k].order] = k;
    }
}

}  // namespace cohort::engine
