#include "cohort/sync/buddy.h"

#include "cohort/base/error.h"
#include "cohort/sync/bucket.h"
#include "cohort/sync/elements.h"
#include "cohort/sync/memory.h"

namespace cohort::sync {

bool Buddy::here() const { return bucket_.placement().has_buddy_copy(); }

Range Buddy::piece() const { return bucket_.range_of(bucket_.placement().previous_rank()); }

const Slot& Buddy::parameters() const { return bucket_.placement().gathers_parameters() ? slots_.back() : bucket_.params_; }

// Begins as its owner begins: all ranks hold the same parameters here, and state starts as the rule says.
void Buddy::allocate() {
  slots_.clear();
  if (!here()) return;
  const std::size_t bytes = piece().count * size_of(bucket_.type());
  for (std::size_t i = 0; i < bucket_.unreplicated().size(); ++i)
    slots_.push_back({pages_for(bytes, 2 + i), piece().first, {MemoryClass::optimizer, bytes}, bucket_.device()});
  grads_ = {pages_for(bytes, 0), piece().first, {MemoryClass::gradients, bytes}, bucket_.device()};
  if (bucket_.keeps_whole()) {
    const std::size_t run_bytes = run().bytes();
    run_ = {pages_for(run_bytes, 2), 0, {MemoryClass::optimizer, run_bytes}, bucket_.device()};
  }
  for (const Member& m : bucket_.members())
    for (std::size_t i = 0; i < bucket_.specs(m).size(); ++i) fill(state(m, i), bucket_.specs(m)[i].initial);
}

Range Buddy::range(const Member& m) const { return bucket_.part_of(piece(), m); }

Piece Buddy::parameter(const Member& m) const { return parameters().piece(bucket_.range_in(piece(), m), bucket_.type()); }

Piece Buddy::state(const Member& m, std::size_t which) const {
  if (!bucket_.keeps_whole()) return slots_.at(which).piece(bucket_.range_in(piece(), m), bucket_.type());
  return range(m).count > 0 ? bucket_.state_in(run_, m, which) : Piece{.dtype = bucket_.specs(m)[which].dtype};
}

// Where live parameters are whole they are this rank's own copy of all, which the all-gather that follows writes again with the same bits.
optim::Slice Buddy::slice(const Member& m, std::vector<void*>& state) const {
  const Range mine = bucket_.range_in(piece(), m);
  state.clear();
  for (std::size_t i = 0; i < bucket_.states(); ++i) state.push_back(slots_[i].at(mine.first, bucket_.type()));
  if (bucket_.keeps_whole())
    for (std::size_t i = 0; i < bucket_.specs(m).size(); ++i) state.push_back(this->state(m, i).data);
  return {.param = parameters().at(mine.first, bucket_.type()),
          .grad = grads_.at(mine.first, bucket_.type()),
          .state = state,
          .count = mine.count,
          .dtype = bucket_.type(),
          .lr_scale = m.group.lr_scale,
          .weight_decay = m.group.weight_decay,
          .name = m.name,
          .shape = m.shape,
          .first = range(m).first};
}

Piece Buddy::run() const {
  return {run_.region.data(), bucket_.plan_.bytes[static_cast<std::size_t>(bucket_.placement().previous_rank())], Dtype::u8,
          bucket_.device()};
}
Piece Buddy::own_run() const {
  return {bucket_.run_.region.data(), bucket_.plan_.bytes[static_cast<std::size_t>(bucket_.placement().me)], Dtype::u8, bucket_.device()};
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

void Buddy::send(collective::Communicator& comm) const {
  if (!here()) return;
  const Ring ring(static_cast<std::size_t>(bucket_.placement().me), bucket_.counts());
  comm.all_to_all(bucket_.agreed(), grads_.piece(piece(), bucket_.type()), {.name = bucket_.name()}, ring.sends, ring.recvs);
}

void Buddy::copy(collective::Communicator& comm) const {
  if (!here()) return;
  const Ring ring(static_cast<std::size_t>(bucket_.placement().me), bucket_.counts());
  const auto all = bucket_.unreplicated();
  for (std::size_t k = 0; k < all.size(); ++k)
    comm.all_to_all(all[k]->piece(bucket_.owned(), bucket_.type()), slots_[k].piece(piece(), bucket_.type()), {.name = bucket_.name()},
                    ring.sends, ring.recvs);
  if (!bucket_.keeps_whole()) return;
  const Ring runs(static_cast<std::size_t>(bucket_.placement().me), bucket_.plan_.bytes);
  comm.all_to_all(own_run(), run(), {.name = bucket_.name()}, runs.sends, runs.recvs);
}

void Buddy::restore(collective::Communicator& comm, Rank lost) {
  const Placement& placement = bucket_.placement();
  if (!placement.buddy)
    throw_failure(Kind::usage, "{}: no rank has a copy of what rank {} had; set buddy=true before it is needed", bucket_.name(),
                  lost.value);
  if (placement.ranks == 1) return;
  const Rank buddy{(lost.value + 1) % placement.ranks}, me{placement.me};
  if (me != buddy && me != lost) return;
  std::vector<Piece> from, to;
  for (const Slot& slot : slots_) from.push_back(slot.piece(piece(), bucket_.type()));
  for (const Slot* slot : bucket_.unreplicated()) to.push_back(slot->piece(bucket_.owned(), bucket_.type()));
  if (bucket_.keeps_whole()) {
    from.push_back(run());
    to.push_back(own_run());
  }
  if (!placement.gathers_parameters()) {  // parameters are whole everywhere
    from.push_back(bucket_.params_.piece(bucket_.range_of(lost.value), bucket_.type()));
    to.push_back(bucket_.owned_parameters());
  }
  for (std::size_t k = 0; k < to.size(); ++k)
    me == buddy ? comm.send(from[k], lost, 0, {.name = bucket_.name()}) : comm.recv(to[k], buddy, 0, {.name = bucket_.name()});
}

}  // namespace cohort::sync
