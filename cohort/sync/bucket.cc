#include "cohort/sync/bucket.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/sync/elements.h"
#include "cohort/sync/memory.h"

namespace cohort::sync {
namespace {

constexpr std::size_t kAlign = 64;  // bytes: a cache line, and what the widest vector load likes

std::string name_of(int index, const std::vector<Member>& members) {
  if (members.empty()) throw_failure(Kind::bug, "a bucket without parameters");
  return members.size() == 1 ? fmt::format("bucket {} ({})", index, members[0].name)
                             : fmt::format("bucket {} ({} .. {})", index, members.front().name, members.back().name);
}

}  // namespace

std::size_t assign_offsets(std::vector<Member>& members, Dtype type) {
  const std::size_t grain = kAlign / size_of(type);
  std::size_t next = 0;
  for (Member& m : members) {
    m.first = next;
    m.count = 1;
    for (const auto size : m.shape) m.count *= static_cast<std::size_t>(size);
    next = round_up(next + m.count, grain);
  }
  return next;
}

Bucket::Bucket(int index, std::vector<Member> members, Dtype type, collective::Communicator& comm, Placement placement, BufferPool* pool,
               Device device, const Cutting& cutting)
    : index_(index),
      members_(std::move(members)),
      type_(type),
      device_(device),
      count_(assign_offsets(members_, type_)),
      placement_(std::move(placement)),
      pool_(pool),
      owned_{0, count_},
      name_(name_of(index, members_)) {
  grads_.device = device_;
  if (!pooled()) grads_ = {comm.allocate(bytes(), device_), 0, {MemoryClass::gradients, bytes()}, device_};
  if (!placement_.sharded()) return;
  std::vector<Range> tensors;
  for (const Member& m : members_) tensors.push_back(m.range());
  edges_ = cutting.grain == optim::Grain::tensor ? cut_between(tensors, count_, *cutting.load) : cut(tensors, count_, placement_.ranks);
  for (std::size_t r = 0; r + 1 < edges_.size(); ++r) counts_.push_back(edges_[r + 1] - edges_[r]);
  owned_ = range_of(placement_.me);
  const std::size_t own_bytes = owned_.count * size_of(type_);
  if (pooled()) sums_ = {memory_for(own_bytes, 0, device_), owned_.first, {MemoryClass::gradients, own_bytes}, device_};
  came_.assign(members_.size(), false);
}

Layout Bucket::layout() const {
  Layout all{.tensors = {}, .count = count_};
  for (const Member& m : members_) all.tensors.push_back({m.name, m.first, m.count, m.is_box ? Shape{} : m.shape});
  return all;
}

Range Bucket::part_of(const Range& piece, const Member& m) const {
  const Range both = piece.overlap(m.range());
  return {both.count > 0 ? both.first - m.first : 0, both.count};
}

Range Bucket::range_in(const Range& piece, const Member& m) const {
  const Range both = piece.overlap(m.range());
  return {both.count > 0 ? both.first : piece.first, both.count};
}

// --- gradients

std::byte* Bucket::gradient(const Member& m) const {
  return placement_.sharded() ? agreed_slot().at(owned_of(m).first, type_) : grads_.at(m.first, type_);
}

void Bucket::acquire_gradients() {
  if (pooled() && !grads_.here()) grads_.region = pool_->acquire(bytes());
}

collective::Piece Bucket::reduce_output() const { return (pooled() && !summed_ ? sums_ : grads_).piece(owned_, type_); }

void Bucket::mark_reduced() {
  if (!pooled()) return;
  came_.assign(members_.size(), false);
  if (summed_) add(sums_.piece(owned_, type_), grads_.piece(owned_, type_));
  summed_ = true;
  pool_->release(std::exchange(grads_.region, {}));
}

void Bucket::clear() {
  if (!pooled()) return zero(gradients());
  came_.assign(members_.size(), false);
  summed_ = false;
  if (grads_.here()) pool_->release(std::exchange(grads_.region, {}));
}

void Bucket::rebase(const collective::Region& fresh) {
  if (fresh.bytes() < bytes()) throw_failure(Kind::usage, "{}: {} bytes do not fit into a region of {}", name_, bytes(), fresh.bytes());
  if (pooled()) throw_failure(Kind::usage, "{}: its gradients have no memory of their own to move", name_);
  if (fresh.data() == grads_.region.data()) return;
  copy(all_in(fresh), gradients());
  grads_.region = fresh;
}

void Bucket::reduce_by(std::shared_ptr<const codec::Codec> codec, collective::Communicator& comm) {
  if (type_ != Dtype::f32)
    throw_failure(Kind::usage, "{}: codec {} is for f32 gradients, these are {}; train in f32, or with codec=none", name_, codec->spec(),
                  cohort::name_of(type_));
  const bool to_owners = placement_.sharded();
  std::vector<Range> tensors;
  for (const Member& m : members_) tensors.push_back(m.range());
  coded_ = std::make_unique<CodedReduce>(std::move(codec), layout(), to_owners ? edges_ : cut(tensors, count_, comm.size()),
                                         to_owners ? ReduceTo::owners : ReduceTo::all, comm);
}

void Bucket::mark_consumed() {
  summed_ = false;
  if (placement_.sharded() && !pooled()) {  // the update left zeros in the own piece
    zero(grads_.piece({0, owned_.first}, type_));
    zero(grads_.piece({owned_.last(), count_ - owned_.last()}, type_));
  }
  page_out_state();
}

}  // namespace cohort::sync
