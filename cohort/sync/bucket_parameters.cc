// What a bucket holds beside gradients: parameters and the optimizer's state.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>

#include "cohort/base/bytes.h"
#include "cohort/nn/tensor.h"
#include "cohort/sync/bucket.h"
#include "cohort/sync/memory.h"

namespace cohort::sync {

void Bucket::own_parameters(const optim::Optimizer& rule, collective::Communicator& comm) {
  const at::NoGradGuard no_grad;
  const std::size_t own_bytes = owned_.count * c10::elementSize(type_);
  const bool sharded = sharding_.stage >= 3, offloaded = !sharding_.offload.empty();
  const std::size_t held = sharded ? own_bytes : bytes();
  const auto entry = [&](MemoryClass what, std::size_t size, bool on_disk) {
    return on_disk ? Ledger::Entry{} : Ledger::Entry{what, size};
  };
  // Where peers gather them they lie in the communicator's memory, else in pages of this process, or on disk.
  params_ = {sharding_.stage == 0   ? pages_for(held, 1)
             : sharded && offloaded ? file_for(held, sharding_.offload)
                                    : comm.allocate(std::max(held, kCacheLine)),
             sharded ? owned_.first : 0, entry(MemoryClass::parameters, held, sharded && offloaded)};
  for (Member& m : members_) sharded ? copy_owned(m) : move_in(m);
  states_.clear();
  for (std::size_t i = 0; i < rule.state_names().size(); ++i) {
    states_.push_back({offloaded ? file_for(own_bytes, sharding_.offload) : pages_for(own_bytes, 2 + i), owned_.first,
                       entry(MemoryClass::optimizer, own_bytes, offloaded)});
    for (const Member& m : members_) owned_state(m, i).fill_(rule.initial_state(i));
  }
  allocate_buddy_copy(rule);
  page_out_state();
}

void Bucket::mark_consumed() {
  summed_ = false;
  if (sharding_.stage == 1) {  // the update left zeros in the own piece
    std::memset(grads_.region.data(), 0, owned_.first * c10::elementSize(type_));
    std::memset(at(grads_, owned_.last()), 0, (count_ - owned_.last()) * c10::elementSize(type_));
  }
  page_out_state();
}

void Bucket::page_out_state() const {
  if (sharding_.offload.empty()) return;
  for (const Flat* flat : unreplicated()) page_out(flat->region);
}

void Bucket::move_in(Member& m) {
  const at::Tensor place = view(params_, m.first, m.param.sizes());
  place.copy_(m.param.detach());
  if (sharding_.host) return;
  m.param.set_data(place);
  if (!pooled()) m.param.mutable_grad() = view(grads_, m.first, m.param.sizes());
}

void Bucket::copy_to_device() const {
  if (!sharding_.host || sharding_.stage >= 3) return;
  const at::NoGradGuard no_grad;
  for (const Member& m : members_) m.param.detach().copy_(view(params_, m.first, m.param.sizes()));
}

void Bucket::copy_from_device() const {
  if (!sharding_.host || sharding_.stage >= 3) return;
  const at::NoGradGuard no_grad;
  for (const Member& m : members_) view(params_, m.first, m.param.sizes()).copy_(m.param.detach());
}

void Bucket::copy_owned(const Member& m) {
  const Range own = owned(m);
  const auto first = static_cast<std::int64_t>(own.first), count = static_cast<std::int64_t>(own.count);
  owned_parameter(m).copy_(m.param.detach().view(-1).narrow(0, first, count));
}

collective::Piece Bucket::all_in(const collective::Region& memory) const {
  return {memory.data(), count_, nn::dtype_of(type_), collective::Device::cpu};
}

collective::Piece Bucket::parameters() const { return piece(params_, {0, count_}); }
collective::Piece Bucket::owned_parameters() const { return piece(params_, owned_); }

optim::Slice Bucket::slice(const Member& m, std::vector<void*>& state) const {
  const std::size_t first = first_owned(m);
  state.clear();
  for (const auto& flat : states_) state.push_back(at(flat, first));
  return {.param = at(params_, first),
          .grad = gradient(m),
          .state = state,
          .count = owned(m).count,
          .dtype = real(),
          .lr_scale = m.group.lr_scale,
          .weight_decay = m.group.weight_decay};
}

at::Tensor Bucket::state(const Member& m, std::size_t which) const { return view(states_.at(which), m.first, m.param.sizes()); }

at::Tensor Bucket::owned_parameter(const Member& m) const {
  return view(params_, first_owned(m), {static_cast<std::int64_t>(owned(m).count)});
}

at::Tensor Bucket::owned_state(const Member& m, std::size_t which) const {
  return view(states_.at(which), first_owned(m), {static_cast<std::int64_t>(owned(m).count)});
}

}  // namespace cohort::sync
