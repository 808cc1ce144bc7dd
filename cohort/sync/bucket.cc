#include "cohort/sync/bucket.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cstring>
#include <new>

#include "cohort/base/bytes.h"
#include "cohort/base/pages.h"
#include "cohort/nn/tensor.h"

namespace cohort::sync {
namespace {

constexpr std::size_t kAlign = 64;     // bytes: a cache line, and what the widest vector load likes
constexpr std::size_t kSmall = 1_MiB;  // below it huge pages are mostly air, and a model may have a thousand small buckets

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

// Regions differ by an odd number of lines, or passes over several of them at once would fight for the same cache sets.
collective::Region pages_for(std::size_t bytes, std::size_t which) {
  if (bytes < kSmall) {
    const std::shared_ptr<void> lines(::operator new (bytes, std::align_val_t{kAlign}),
                                      [](void* p) { ::operator delete (p, std::align_val_t{kAlign}); });
    std::memset(lines.get(), 0, bytes);
    return collective::Region{lines, lines.get(), bytes};
  }
  const std::size_t skew = which * (kPageBytes + 17 * kAlign);
  auto pages = huge_pages(bytes + skew);
  void* const data = static_cast<std::byte*>(pages.get()) + skew;
  return collective::Region{std::move(pages), data, bytes};
}

}  // namespace

std::size_t lay_out(std::vector<Member>& members, at::ScalarType type) {
  const std::size_t grain = kAlign / c10::elementSize(type);
  std::size_t next = 0;
  for (Member& m : members) {
    m.first = next;
    m.count = static_cast<std::size_t>(m.param.numel());
    next = round_up(next + m.count, grain);
  }
  return next;
}

Bucket::Bucket(int index, std::vector<Member> members, collective::Communicator& comm)
    : index_(index), members_(std::move(members)), type_(type_of(members_)), count_(lay_out(members_, type_)) {
  name_ = members_.size() == 1 ? fmt::format("bucket {} ({})", index, members_[0].name)
                               : fmt::format("bucket {} ({} .. {})", index, members_.front().name, members_.back().name);
  grads_ = comm.allocate(bytes());
  attach();
}

std::size_t Bucket::bytes() const { return count_ * c10::elementSize(type_); }
collective::Piece Bucket::gradients() const { return {grads_.data(), count_, nn::dtype_of(type_), collective::Device::cpu}; }
std::byte* Bucket::gradient(const Member& m) const { return static_cast<std::byte*>(grads_.data()) + m.first * c10::elementSize(type_); }

// A storage of its own, not a view in autograd's sense: libtorch's zero_grad() detaches gradients in place, which views refuse.
at::Tensor Bucket::view(const collective::Region& region, const Member& m) const {
  const std::size_t each = c10::elementSize(type_);
  std::byte* const data = static_cast<std::byte*>(region.data()) + m.first * each;
  return nn::tensor(collective::Region{std::make_shared<collective::Region>(region), data, m.count * each}, m.param.sizes(), type_);
}

void Bucket::attach() {
  const at::NoGradGuard no_grad;  // a lane's thread starts with it on, and a gradient made with create_graph has a history
  for (const Member& m : members_) {
    const at::Tensor now = m.param.grad();
    const bool dense = now.defined() && now.layout() == at::kStrided;
    if (dense && now.data_ptr() == gradient(m) && now.is_contiguous()) continue;
    const at::Tensor place = view(grads_, m);
    if (now.defined()) {
      place.copy_(dense ? now : now.to_dense());
    } else {
      place.zero_();
    }
    m.param.mutable_grad() = place;
  }
}

void Bucket::clear() { std::memset(grads_.data(), 0, bytes()); }

void Bucket::rebase(const collective::Region& fresh) {
  if (fresh.bytes() < bytes()) throw_failure(Kind::usage, "{}: {} bytes do not fit into a region of {}", name_, bytes(), fresh.bytes());
  attach();
  if (fresh.data() == grads_.data()) return;
  std::memcpy(fresh.data(), grads_.data(), bytes());
  grads_ = fresh;
  for (const Member& m : members_) m.param.mutable_grad() = view(grads_, m);
}

void Bucket::own_parameters(const optim::Optimizer& rule) {
  const at::NoGradGuard no_grad;
  params_ = pages_for(bytes(), 1);
  for (Member& m : members_) {
    const at::Tensor place = view(params_, m);
    place.copy_(m.param.detach());
    m.param.set_data(place);
    m.param.mutable_grad() = view(grads_, m);
  }
  states_.clear();
  for (std::size_t i = 0; i < rule.state_names().size(); ++i) {
    states_.push_back(pages_for(bytes(), 2 + i));
    for (const Member& m : members_) view(states_.back(), m).fill_(rule.initial_state(i));
  }
}

optim::Slice Bucket::slice(const Member& m, std::vector<void*>& state) const {
  const std::size_t at = m.first * c10::elementSize(type_);
  state.clear();
  for (const auto& region : states_) state.push_back(static_cast<std::byte*>(region.data()) + at);
  return {.param = static_cast<std::byte*>(params_.data()) + at,
          .grad = gradient(m),
          .state = state,
          .count = m.count,
          .dtype = real(),
          .lr_scale = m.group.lr_scale,
          .weight_decay = m.group.weight_decay};
}

at::Tensor Bucket::state(const Member& m, std::size_t which) const { return view(states_.at(which), m); }

}  // namespace cohort::sync
