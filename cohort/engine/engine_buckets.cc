// Which parameters share a bucket: planned before the first step, and once more after it, by the order in which gradients arrived.
#include <algorithm>
#include <utility>

#include "cohort/engine/engine.h"
#include "cohort/sync/elements.h"

namespace cohort::engine {
namespace {

constexpr int kTypes = static_cast<int>(at::ScalarType::NumOptions);

void move_state(const Bucket& from, std::size_t old_place, const Bucket& to, std::size_t place) {
  const auto &before = from.members()[old_place], &now = to.members()[place];
  for (std::size_t k = 0; k < to.specs(now).size(); ++k) sync::copy(to.owned_state(now, k), from.owned_state(before, k));
}

}  // namespace

void Engine::make_buckets(const std::vector<std::size_t>& order) {
  std::vector<PlanTensor> tensors;
  const bool by_unit = placement_.gathers_parameters();  // a unit is a bucket
  for (const std::size_t i : order) {
    const int type = static_cast<int>(parameters_[i].tensor.scalar_type());
    const int kind = (by_unit ? (parameters_[i].unit + 1) * kTypes + type : type) * spans_.count() + span_of_[i];
    tensors.push_back({parameters_[i].tensor.nbytes(), kind});
  }
  Buckets fresh;
  std::vector<std::size_t> load(static_cast<std::size_t>(comm_.size()));  // of each rank, where tensors stay whole
  const sync::Cutting cutting{rule_ ? rule_->needs().grain : optim::Grain::block, &load};
  for (const auto& picked : plan_buckets(tensors, options_.first_bucket, by_unit ? ByteSize{0} : options_.bucket)) {
    std::vector<TrainedTensor> members;
    const bool in_block = parameters_[order[picked[0]]].unit >= 0;
    for (const std::size_t k : picked) members.push_back(trained_tensor(order[k]));
    const sync::Placement placement = placement_of(span_of_[order[picked[0]]]);
    fresh.push_back(std::make_unique<Bucket>(static_cast<int>(fresh.size()), members, comm_,
                                             in_block ? placement : placement.without_gathered_parameters(), pool_.get(), cutting));
    if (rule_) fresh.back()->own_parameters(*rule_, comm_);
    if (auto& peers = comms_.of(*fresh.back()); encodes(peers.size())) fresh.back()->reduce_by(codec_, peers);
  }
  const auto old = std::exchange(buckets_, std::move(fresh));
  const auto old_bucket = std::exchange(bucket_of_, {}), old_place = std::exchange(place_in_, {});
  index_buckets();
  if (old.empty() || !rule_) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i)  // optimizer state moves along with its parameter
    move_state(*old[old_bucket[i]], old_place[i], *buckets_[bucket_of_[i]], place_in_[i]);
}

// Ranks have the same gradient of it where they differ along none of the axes that cut it or that it is summed over; the same sum, where
// they differ along none that cuts it; and the same part of the sum, where every rank of its span owns another, as the gradient.
TrainedTensor Engine::trained_tensor(std::size_t parameter) const {
  const Parameter& p = parameters_[parameter];
  MeshAxes differing = p.cut;
  differing.insert(differing.end(), p.over.begin(), p.over.end());
  const auto same_gradient = spans_.holders(differing);
  return {.name = p.name,
          .param = p.tensor,
          .group = p.group,
          .order = parameter,
          .is_box = !p.shard.name.empty(),
          .same_gradient = same_gradient,
          .same_part = placement_.sharded() ? same_gradient : spans_.holders(p.cut)};
}

void Engine::index_buckets() {
  bucket_of_.assign(parameters_.size(), 0);
  place_in_.assign(parameters_.size(), 0);
  std::vector<std::size_t> members;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    members.push_back(buckets_[b]->members().size());
    for (std::size_t k = 0; k < buckets_[b]->members().size(); ++k) {
      bucket_of_[buckets_[b]->members()[k].order] = b;
      bucket_by_tensor_[parameters_[buckets_[b]->members()[k].order].tensor.unsafeGetTensorImpl()] = buckets_[b].get();
      place_in_[buckets_[b]->members()[k].order] = k;
    }
  }
  arrivals_.assign_buckets(std::move(members));
}

// After the first step buckets follow the order in which gradients really arrived: rank 0's, so that it is the same on all.
void Engine::reorder() {
  ordered_ = true;
  if (placement_.sharded()) return reorder_buckets();
  if (lanes_.empty()) return;
  if (codec_ || !strategy_->slots().empty()) return reorder_buckets();
  auto arrived = arrivals_.order();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!arrivals_.arrived(i)) arrived.push_back(i);  // these may keep others waiting: to the end
  std::vector<std::int64_t> order(arrived.begin(), arrived.end());
  comm_.broadcast(collective::piece(std::span(order)), Rank{0}, {.name = "order of gradients"});
  make_buckets({order.begin(), order.end()});
}

// What is sharded, or has residuals or slots, stays where it is: the same buckets in another order.
void Engine::reorder_buckets() {
  const auto& completed = arrivals_.completed();
  std::vector<std::int64_t> order(completed.begin(), completed.end());
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (std::find(completed.begin(), completed.end(), b) == completed.end()) order.push_back(static_cast<std::int64_t>(b));
  comm_.broadcast(collective::piece(std::span(order)), Rank{0}, {.name = "order of buckets"});
  Buckets sorted;
  for (const auto b : order) sorted.push_back(std::move(buckets_[static_cast<std::size_t>(b)]));
  buckets_ = std::move(sorted);
  index_buckets();
}

}  // namespace cohort::engine
