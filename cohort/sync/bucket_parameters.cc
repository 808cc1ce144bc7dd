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
  params_ = {!placement_.sharded() ? pages_for(held, 1)
             : on_disk             ? file_for(held, placement_.folder)
                                   : comm.allocate(std::max(held, kCacheLine), device_),
             own_alone ? owned_.first : 0, on_disk ? Ledger::Entry{} : Ledger::Entry{MemoryClass::parameters, held}, device_};
}

void Bucket::allocate_state(const optim::Optimizer& rule) {
  const std::size_t own_bytes = owned_.count * size_of(type_);
  const bool on_disk = placement_.state_on_disk();
  states_.clear();
  for (std::size_t i = 0; i < rule.state_names().size(); ++i) {
    states_.push_back({on_disk ? file_for(own_bytes, placement_.folder) : pages_for(own_bytes, 2 + i), owned_.first,
                       on_disk ? Ledger::Entry{} : Ledger::Entry{MemoryClass::optimizer, own_bytes}, device_});
    for (const Member& m : members_) fill(owned_state(m, i), rule.initial_state(i));
  }
  buddy_.allocate(rule);
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
}

optim::Slice Bucket::slice(const Member& m, std::vector<void*>& state) const {
  const std::size_t first = owned_of(m).first;
  state.clear();
  for (const Slot& slot : states_) state.push_back(slot.at(first, type_));
  return {.param = params_.at(first, type_),
          .grad = gradient(m),
          .state = state,
          .count = owned(m).count,
          .dtype = type_,
          .lr_scale = m.group.lr_scale,
          .weight_decay = m.group.weight_decay};
}

collective::Piece Bucket::open_slot(const std::string& name, collective::Communicator* comm) {
  if (!extra_.contains(name)) {
    auto region = comm != nullptr ? comm->allocate(bytes(), device_) : pages_for(bytes(), 2 + states_.size() + extra_.size());
    extra_.emplace(name, Slot{std::move(region), 0, {MemoryClass::optimizer, bytes()}, device_});
  }
  return slot(name);
}

}  // namespace cohort::sync
