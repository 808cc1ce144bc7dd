// Buddy copies: what only one rank has, its optimizer state and in stage 3 its parameters, is kept by the next rank too. Not by sending it
// after every update but by repeating the update there, from the same agreed gradients, which travel before the step's vote. So at every
// moment there is enough to finish a step or to have never begun it without the rank that is lost:
//   before the vote  nobody has changed anything; the kept copies are those of the step before, whole
//   after the vote   whoever heard its end can update its own piece and the kept one with nobody's help (engine.h, end_alone)
// On the wire 1/N of the gradients a step more; sending state would be two to three times that, and a rank that dies in the middle of it
// would leave its buddy half of each.
#include <ATen/core/grad_mode.h>

#include "cohort/nn/tensor.h"
#include "cohort/sync/bucket.h"
#include "cohort/sync/memory.h"

namespace cohort::sync {

std::vector<const Bucket::Flat*> Bucket::precious() const {
  std::vector<const Flat*> all;
  for (const Flat& flat : states_) all.push_back(&flat);
  if (sharding_.stage >= 3) all.push_back(&params_);
  return all;
}

// Begins as its owner begins: all ranks hold the same parameters here, and state starts as the rule says.
void Bucket::keep_for_buddy(const optim::Optimizer& rule) {
  kept_.clear();
  if (!keeps()) return;
  const Range piece = range_of(before());
  const std::size_t bytes = piece.count * c10::elementSize(type_);
  for (std::size_t i = 0; i < precious().size(); ++i)
    kept_.push_back({pages_for(bytes, 2 + i), piece.first, {MemoryClass::optimizer, bytes}});
  kept_grads_ = {pages_for(bytes, 0), piece.first, {MemoryClass::gradients, bytes}};
  for (const Member& m : members_) {
    for (std::size_t i = 0; i < states_.size(); ++i) kept_state(m, i).fill_(rule.initial_state(i));
    if (sharding_.stage < 3) continue;
    const Range range = kept(m);
    kept_parameter(m).copy_(
        m.param.detach().view(-1).narrow(0, static_cast<std::int64_t>(range.first), static_cast<std::int64_t>(range.count)));
  }
}

Range Bucket::kept(const Member& m) const {
  const Range both = range_of(before()).overlap({m.first, m.count});
  return {both.count > 0 ? both.first - m.first : 0, both.count};
}

at::Tensor Bucket::kept_parameter(const Member& m) const {
  return view(kept_parameters(), first_in(range_of(before()), m), {static_cast<std::int64_t>(kept(m).count)});
}

at::Tensor Bucket::kept_state(const Member& m, std::size_t which) const {
  return view(kept_.at(which), first_in(range_of(before()), m), {static_cast<std::int64_t>(kept(m).count)});
}

// Up to stage 2 its parameters are those of this rank's own copy of all, which the all-gather that follows writes again with the same bits.
optim::Slice Bucket::kept_slice(const Member& m, std::vector<void*>& state) const {
  const std::size_t first = first_in(range_of(before()), m);
  state.clear();
  for (std::size_t i = 0; i < states_.size(); ++i) state.push_back(at(kept_[i], first));
  return {.param = at(kept_parameters(), first),
          .grad = at(kept_grads_, first),
          .state = state,
          .count = kept(m).count,
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

void Bucket::entrust(collective::Communicator& comm) const {
  if (!keeps()) return;
  const Ring ring(static_cast<std::size_t>(sharding_.me), counts_);
  comm.all_to_all(piece(pooled() ? sums_ : grads_, owned_), piece(kept_grads_, range_of(before())), {.name = name_}, ring.sends,
                  ring.recvs);
}

void Bucket::copy_to_buddy(collective::Communicator& comm) const {
  if (!keeps()) return;
  const Ring ring(static_cast<std::size_t>(sharding_.me), counts_);
  const auto all = precious();
  for (std::size_t k = 0; k < all.size(); ++k)
    comm.all_to_all(piece(*all[k], owned_), piece(kept_[k], range_of(before())), {.name = name_}, ring.sends, ring.recvs);
}

void Bucket::take_back(collective::Communicator& comm, Rank lost) {
  if (!sharding_.buddy)
    throw_failure(Kind::usage, "{}: nobody kept what rank {} had; say buddy=true before it is needed", name_, lost.value);
  if (sharding_.ranks == 1) return;
  const Rank keeper{(lost.value + 1) % sharding_.ranks}, me{sharding_.me};
  if (me != keeper && me != lost) return;
  auto from = std::vector<collective::Piece>{}, to = from;
  for (const Flat& flat : kept_) from.push_back(piece(flat, range_of(before())));
  for (const Flat* flat : precious()) to.push_back(piece(*flat, owned_));
  if (sharding_.stage < 3) {  // parameters are whole everywhere
    from.push_back(piece(params_, range_of(lost.value)));
    to.push_back(piece(params_, owned_));
  }
  for (std::size_t k = 0; k < to.size(); ++k)
    me == keeper ? comm.send(from[k], lost, 0, {.name = name_}) : comm.recv(to[k], keeper, 0, {.name = name_});
}

}  // namespace cohort::sync
