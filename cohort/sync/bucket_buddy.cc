// Buddy copies: what only one rank has, its optimizer state and in stage 3 its parameters, is held by the next rank too. Not by sending it
// after every update but by repeating the update there, from the same reduced gradients, which are sent before the step's vote. So at every
// moment there is enough to finish a step or to have never begun it without the rank that is lost:
//   before the vote  no rank has changed anything; buddy copies are those of the step before, whole
//   after the vote   a rank that got its result can update its own piece and the buddy copy alone (engine.h, finish_step_alone)
// Sent are 1/N of the gradients a step more; sending state would be two to three times that, and a rank that dies in the middle of it
// would leave its buddy half of each.
#include <ATen/core/grad_mode.h>

#include "cohort/nn/tensor.h"
#include "cohort/sync/bucket.h"
#include "cohort/sync/memory.h"

namespace cohort::sync {

std::vector<const Bucket::Flat*> Bucket::unreplicated() const {
  std::vector<const Flat*> all;
  for (const Flat& flat : states_) all.push_back(&flat);
  if (sharding_.stage >= 3) all.push_back(&params_);
  return all;
}

// Begins as its owner begins: all ranks hold the same parameters here, and state starts as the rule says.
void Bucket::allocate_buddy_copy(const optim::Optimizer& rule) {
  buddy_.clear();
  if (!has_buddy_copy()) return;
  const Range piece = range_of(previous_rank());
  const std::size_t bytes = piece.count * c10::elementSize(type_);
  for (std::size_t i = 0; i < unreplicated().size(); ++i)
    buddy_.push_back({pages_for(bytes, 2 + i), piece.first, {MemoryClass::optimizer, bytes}});
  buddy_grads_ = {pages_for(bytes, 0), piece.first, {MemoryClass::gradients, bytes}};
  for (const Member& m : members_) {
    for (std::size_t i = 0; i < states_.size(); ++i) buddy_state(m, i).fill_(rule.initial_state(i));
    if (sharding_.stage < 3) continue;
    const Range range = buddy_range(m);
    buddy_parameter(m).copy_(
        m.param.detach().view(-1).narrow(0, static_cast<std::int64_t>(range.first), static_cast<std::int64_t>(range.count)));
  }
}

Range Bucket::buddy_range(const Member& m) const {
  const Range both = range_of(previous_rank()).overlap({m.first, m.count});
  return {both.count > 0 ? both.first - m.first : 0, both.count};
}

at::Tensor Bucket::buddy_parameter(const Member& m) const {
  return view(buddy_parameters(), first_in(range_of(previous_rank()), m), {static_cast<std::int64_t>(buddy_range(m).count)});
}

at::Tensor Bucket::buddy_state(const Member& m, std::size_t which) const {
  return view(buddy_.at(which), first_in(range_of(previous_rank()), m), {static_cast<std::int64_t>(buddy_range(m).count)});
}

// Up to stage 2 its parameters are those of this rank's own copy of all, which the all-gather that follows writes again with the same bits.
optim::Slice Bucket::buddy_slice(const Member& m, std::vector<void*>& state) const {
  const std::size_t first = first_in(range_of(previous_rank()), m);
  state.clear();
  for (std::size_t i = 0; i < states_.size(); ++i) state.push_back(at(buddy_[i], first));
  return {.param = at(buddy_parameters(), first),
          .grad = at(buddy_grads_, first),
          .state = state,
          .count = buddy_range(m).count,
          .dtype = real(),
          .lr_scale = m.group.lr_scale,
          .weight_decay = m.group.weight_decay};
}

namespace {

// What to send to the rank after `me` and to receive from the one before it.
struct Ring {
  Ring(std::size_t me, const std::vector<std::size_t>& counts) : sends(counts.size(), 0), recvs(counts.size(), 0) {
    const std::size_t n = counts.size(), from = (me + n - 1) % n;
    sends[(me + 1) % n] = counts[me];
    recvs[from] = counts[from];
  }
  std::vector<std::size_t> sends, recvs;
};

}  // namespace

void Bucket::send_to_buddy(collective::Communicator& comm) const {
  if (!has_buddy_copy()) return;
  const Ring ring(static_cast<std::size_t>(sharding_.me), counts_);
  comm.all_to_all(piece(pooled() ? sums_ : grads_, owned_), piece(buddy_grads_, range_of(previous_rank())), {.name = name_}, ring.sends,
                  ring.recvs);
}

void Bucket::copy_to_buddy(collective::Communicator& comm) const {
  if (!has_buddy_copy()) return;
  const Ring ring(static_cast<std::size_t>(sharding_.me), counts_);
  const auto all = unreplicated();
  for (std::size_t k = 0; k < all.size(); ++k)
    comm.all_to_all(piece(*all[k], owned_), piece(buddy_[k], range_of(previous_rank())), {.name = name_}, ring.sends, ring.recvs);
}

void Bucket::restore_from_buddy(collective::Communicator& comm, Rank lost) {
  if (!sharding_.buddy)
    throw_failure(Kind::usage, "{}: no rank has a copy of what rank {} had; set buddy=true before it is needed", name_, lost.value);
  if (sharding_.ranks == 1) return;
  const Rank buddy{(lost.value + 1) % sharding_.ranks}, me{sharding_.me};
  if (me != buddy && me != lost) return;
  auto from = std::vector<collective::Piece>{}, to = from;
  for (const Flat& flat : buddy_) from.push_back(piece(flat, range_of(previous_rank())));
  for (const Flat* flat : unreplicated()) to.push_back(piece(*flat, owned_));
  if (sharding_.stage < 3) {  // parameters are whole everywhere
    from.push_back(piece(params_, range_of(lost.value)));
    to.push_back(piece(params_, owned_));
  }
  for (std::size_t k = 0; k < to.size(); ++k)
    me == buddy ? comm.send(from[k], lost, 0, {.name = name_}) : comm.recv(to[k], buddy, 0, {.name = name_});
}

}  // namespace cohort::sync
