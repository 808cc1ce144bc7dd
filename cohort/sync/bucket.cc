#include "cohort/sync/bucket.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cohort/base/bytes.h"
#include "cohort/nn/tensor.h"
#include "cohort/sync/memory.h"

namespace cohort::sync {
namespace {

constexpr std::size_t kAlign = 64;  // bytes: a cache line, and what the widest vector load likes

at::ScalarType type_of(const std::vector<Member>& members) {
  if (members.empty()) throw_failure(Kind::bug, "a bucket without parameters");
  const auto type = members[0].param.scalar_type();
  for (const Member& m : members) {
    if (m.param.scalar_type() != type) throw_failure(Kind::bug, "{} and {} are of different types in one bucket", members[0].name, m.name);
    if (!m.param.is_contiguous())
      throw_failure(Kind::usage, "parameter {} is not contiguous: call .contiguous() before handing it over", m.name);
  }
  if (type != at::kFloat && type != at::kDouble)
    throw_failure(Kind::usage, "parameter {} is {}: float and double are trained", members[0].name, c10::toString(type));
  return type;
}

}  // namespace

std::size_t assign_offsets(std::vector<Member>& members, at::ScalarType type) {
  const std::size_t grain = kAlign / c10::elementSize(type);
  std::size_t next = 0;
  for (Member& m : members) {
    m.first = next;
    m.count = static_cast<std::size_t>(m.param.numel());
    next = round_up(next + m.count, grain);
  }
  return next;
}

Bucket::Bucket(int index, std::vector<Member> members, collective::Communicator& comm, const Sharding& sharding, BufferPool* pool)
    : index_(index),
      members_(std::move(members)),
      type_(type_of(members_)),
      count_(assign_offsets(members_, type_)),
      sharding_(sharding),
      pool_(pool),
      owned_{0, count_} {
  name_ = members_.size() == 1 ? fmt::format("bucket {} ({})", index, members_[0].name)
                               : fmt::format("bucket {} ({} .. {})", index, members_.front().name, members_.back().name);
  if (!pooled()) grads_ = {comm.allocate(bytes()), 0, {MemoryClass::gradients, bytes()}};
  if (!pooled()) attach();
  if (sharding_.stage == 0) return;
  std::vector<Range> tensors;
  for (const Member& m : members_) tensors.push_back({m.first, m.count});
  edges_ = cut(tensors, count_, sharding_.ranks);
  for (std::size_t r = 0; r + 1 < edges_.size(); ++r) counts_.push_back(edges_[r + 1] - edges_[r]);
  owned_ = range_of(sharding_.me);
  const std::size_t own_bytes = owned_.count * c10::elementSize(type_);
  if (pooled()) sums_ = {pages_for(own_bytes, 0), owned_.first, {MemoryClass::gradients, own_bytes}};
  came_.assign(members_.size(), false);
}

std::size_t Bucket::bytes() const { return count_ * c10::elementSize(type_); }

Range Bucket::owned(const Member& m) const {
  const Range both = owned_.overlap({m.first, m.count});
  return {both.count > 0 ? both.first - m.first : 0, both.count};
}

std::size_t Bucket::first_in(const Range& piece, const Member& m) const {
  const Range both = piece.overlap({m.first, m.count});
  return both.count > 0 ? both.first : piece.first;
}

std::byte* Bucket::at(const Flat& flat, std::size_t element) const {
  return static_cast<std::byte*>(flat.region.data()) + (element - flat.origin) * c10::elementSize(type_);
}

collective::Piece Bucket::piece(const Flat& flat, const Range& range) const {
  return {at(flat, range.first), range.count, nn::dtype_of(type_), collective::Device::cpu};
}

// A storage of its own, not a view in autograd's sense: libtorch's zero_grad() detaches gradients in place, which views refuse.
at::Tensor Bucket::view(const Flat& flat, std::size_t first, at::IntArrayRef sizes) const {
  std::size_t count = 1;
  for (const auto size : sizes) count *= static_cast<std::size_t>(size);
  const collective::Region part{std::make_shared<collective::Region>(flat.region), at(flat, first), count * c10::elementSize(type_)};
  return nn::tensor(part, sizes, type_);
}

// --- gradients

collective::Piece Bucket::gradients() const { return piece(grads_, {0, count_}); }

std::byte* Bucket::gradient(const Member& m) const {
  return sharding_.stage == 0 ? at(grads_, m.first) : at(pooled() ? sums_ : grads_, first_owned(m));
}

void Bucket::attach() {
  if (pooled()) return;
  const at::NoGradGuard no_grad;  // a lane's thread starts with grad mode on, and a gradient made with create_graph has a history
  for (const Member& m : members_) {
    const at::Tensor now = m.param.grad();
    const bool dense = now.defined() && now.layout() == at::kStrided;
    if (dense && now.data_ptr() == at(grads_, m.first) && now.is_contiguous()) continue;
    const at::Tensor place = view(grads_, m.first, m.param.sizes());
    if (now.defined()) {
      place.copy_(dense ? now : now.to_dense());
    } else {
      place.zero_();
    }
    m.param.mutable_grad() = place;
  }
}

void Bucket::acquire_gradients() {
  if (pooled() && grads_.region.data() == nullptr) grads_.region = pool_->acquire(bytes());
}

void Bucket::take(std::size_t member) {
  const Member& m = members_[member];
  const at::Tensor grad = m.param.grad();
  if (!grad.defined()) return;
  const at::NoGradGuard no_grad;
  acquire_gradients();
  at::Tensor place = view(grads_, m.first, m.param.sizes());
  const at::Tensor dense = grad.layout() == at::kStrided ? grad : grad.to_dense();
  if (!dense.device().is_cpu()) {
    came_[member] ? place.add_(dense.cpu()) : place.copy_(dense);
  } else if (came_[member]) {
    place.add_(dense);
  } else {
    at::add_out(place, dense, at::zeros({}, dense.options()));  // as adding to a view of zeros would, -0 and all; one pass
  }
  came_[member] = true;
  m.param.mutable_grad().reset();
}

void Bucket::gather() {
  if (!pooled()) return attach();
  acquire_gradients();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    take(i);  // a gradient that was set without a backward
    const Member& m = members_[i];
    if (!came_[i]) std::memset(at(grads_, m.first), 0, m.count * c10::elementSize(type_));
  }
}

collective::Piece Bucket::reduce_output() const { return piece(pooled() && !summed_ ? sums_ : grads_, owned_); }

void Bucket::mark_reduced() {
  if (!pooled()) return;
  came_.assign(members_.size(), false);
  if (summed_) {
    const auto count = static_cast<std::int64_t>(owned_.count);
    view(sums_, owned_.first, {count}).add_(view(grads_, owned_.first, {count}));
  }
  summed_ = true;
  pool_->release(std::exchange(grads_.region, {}));
}

void Bucket::clear() {
  if (!pooled()) return void(std::memset(grads_.region.data(), 0, bytes()));
  came_.assign(members_.size(), false);
  summed_ = false;
  if (grads_.region.data() != nullptr) pool_->release(std::exchange(grads_.region, {}));
}

void Bucket::rebase(const collective::Region& fresh) {
  if (fresh.bytes() < bytes()) throw_failure(Kind::usage, "{}: {} bytes do not fit into a region of {}", name_, bytes(), fresh.bytes());
  if (pooled()) throw_failure(Kind::usage, "{}: in stage {} gradients have no memory of their own to move", name_, sharding_.stage);
  attach();
  if (fresh.data() == grads_.region.data()) return;
  std::memcpy(fresh.data(), grads_.region.data(), bytes());
  grads_.region = fresh;
  for (const Member& m : members_) m.param.mutable_grad() = view(grads_, m.first, m.param.sizes());
}

}  // namespace cohort::sync
