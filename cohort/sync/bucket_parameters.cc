// What a bucket holds beside gradients: parameters, the optimizer's state, and what a strategy keeps.
#include <algorithm>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/sync/bucket.h"
#include "cohort/sync/elements.h"
#include "cohort/sync/memory.h"

namespace cohort::sync {

void Bucket::allocate_parameters(collective::Communicator& comm) {
  const bool own_alone = placement_.gathers_parameters(), on_disk = own_alone && placement_.master_on_disk();
  const std::size_t held = own_alone ? owned_.count * size_of(type_) : bytes();
  // Where peers gather them they lie in the communicator's memory, else in pages of this process, or on disk.
  params_ = {!placement_.sharded() ? memory_for(held, 1, device_)
             : on_disk             ? file_for(held, placement_.folder)
                                   : comm.allocate(std::max(held, kCacheLine), device_),
             own_alone ? owned_.first : 0, on_disk ? Ledger::Entry{} : Ledger::Entry{MemoryClass::parameters, held}, device_};
}

Slot Bucket::allocate_run(std::size_t bytes, std::size_t which) const {
  if (placement_.state_on_disk()) return {file_for(bytes, placement_.folder), owned_.first, {}, device_};
  return {memory_for(bytes, which, device_), owned_.first, {MemoryClass::optimizer, bytes}, device_};
}

void Bucket::allocate_state(const optim::Optimizer& rule) {
  specs_.clear();
  for (const Member& m : members_) specs_.push_back(rule.state({m.name, m.shape, type_}));
  states_.clear();
  if (rule.needs().grain == optim::Grain::tensor) {
    plan_ = plan_state(specs_, owners(), placement_.sharded() ? placement_.ranks : 1);
    run_ = allocate_run(plan_.bytes[placement_.sharded() ? static_cast<std::size_t>(placement_.me) : 0], 2);
  } else {
    for (std::size_t i = 0; i < specs_[0].size(); ++i) states_.push_back(allocate_run(owned_.count * size_of(type_), 2 + i));
  }
  for (const Member& m : members_)
    for (std::size_t i = 0; i < specs(m).size(); ++i) fill(owned_state(m, i), specs(m)[i].initial);
  buddy_.allocate();
}

std::vector<int> Bucket::owners() const {
  std::vector<int> all;
  for (const Member& m : members_) {
    const auto behind = std::upper_bound(edges_.begin(), edges_.end(), m.first) - edges_.begin();
    all.push_back(edges_.empty() ? 0 : std::clamp(static_cast<int>(behind) - 1, 0, placement_.ranks - 1));
  }
  return all;
}

// run: of the rank that owns the tensor.
Piece Bucket::state_in(const Slot& run, const Member& m, std::size_t which) const {
  const optim::StateSpec& spec = specs(m)[which];
  const std::size_t first = plan_.places[place_of(m)][which];
  return {static_cast<std::byte*>(run.region.data()) + first, optim::count_of(spec.shape), spec.dtype, device_};
}

Piece Bucket::owned_state(const Member& m, std::size_t which) const {
  if (!keeps_whole()) return states_.at(which).piece(owned_of(m), type_);
  return owned(m).count > 0 ? state_in(run_, m, which) : Piece{.dtype = specs(m)[which].dtype};
}

std::vector<const Slot*> Bucket::unreplicated() const {
  std::vector<const Slot*> all;
  for (const Slot& slot : states_) all.push_back(&slot);
  if (placement_.gathers_parameters()) all.push_back(&params_);
  return all;
}

void Bucket::page_out_state() const {
  if (placement_.folder.empty()) return;
  for (const Slot* slot : unreplicated()) page_out(slot->region);
  if (keeps_whole()) page_out(run_.region);
}

optim::Slice Bucket::slice(const Member& m, std::vector<void*>& state) const {
  const std::size_t first = owned_of(m).first;
  state.clear();
  for (const Slot& slot : states_) state.push_back(slot.at(first, type_));
  if (keeps_whole())
    for (std::size_t i = 0; i < specs(m).size(); ++i) state.push_back(owned_state(m, i).data);
  return {.param = params_.at(first, type_),
          .grad = gradient(m),
          .state = state,
          .count = owned(m).count,
          .dtype = type_,
          .lr_scale = m.group.lr_scale,
          .weight_decay = m.group.weight_decay,
          .name = m.name,
          .shape = m.shape,
          .first = owned(m).first,
          .device = device_};
}

collective::Piece Bucket::open_slot(const std::string& name, collective::Communicator* comm, bool per_tensor) {
  if (!extra_.contains(name)) {
    const std::size_t size = (per_tensor ? members_.size() : count_) * size_of(type_);
    auto region = comm != nullptr ? comm->allocate(size, device_) : memory_for(size, 2 + states_.size() + extra_.size(), device_);
    extra_.emplace(name, Extra{{std::move(region), 0, {MemoryClass::optimizer, size}, device_}, per_tensor});
  }
  return slot(name);
}

collective::Piece Bucket::slot(const std::string& name) const {
  const Extra& extra = extra_.at(name);
  return extra.slot.piece({0, extra.per_tensor ? members_.size() : count_}, type_);
}

collective::Piece Bucket::slot(const std::string& name, const Member& m) const {
  const Extra& extra = extra_.at(name);
  return extra.slot.piece(extra.per_tensor ? Range{place_of(m), 1} : m.range(), type_);
}

}  // namespace cohort::sync
