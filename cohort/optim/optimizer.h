// An Optimizer is an update rule without memory of its own: parameters, gradients and state are flat slices that the caller allocates,
// cuts, shards and saves. One rule so serves data parallel, sharded and parameter-server training.
//   auto rule = optim::make("adamw(lr=3e-4, weight_decay=0.1)");        // fill state i with rule->initial_state(i); then, every step:
//   rule->update(slice, {.step = t, .lr = schedule.lr(t - 1, total, rule->default_lr(), workers)});
// Law: element i of a slice depends on element i alone, in one fixed order of rounded operations (no fused multiply-add). The bits are
// the same on every instruction set and however a slice is cut. (Where several NaNs meet, which of them comes out is not promised.)
// A rule that scales its step tensor by tensor (lars, lamb) says so in needs(): the caller measures sums over whole tensors first, in
// rounds, and hands their values to update() in Slice::sums; given those, element i depends on element i alone again:
//   rule->measure(0, slice, info, exact);   // every part of the tensor; the sums of all parts added, then their values; then round 1 ..
// Owner: whoever called make(). Threads: any number at once, on slices that do not overlap.
// Failure: Kind::usage before anything is written.
// To add a rule: rule/<word>.cc with its formula and `row_<word>`, the word in rule/CMakeLists.txt, rule/<word>_test.cc.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/piece.h"

namespace cohort::optim {

class ExactSum;

using cohort::size_of;
using Real = Dtype;  // f32 or f64: what updates are made in

// One contiguous run of elements that this rank owns, all of one parameter group. Borrowed for the call; the runs must not overlap.
struct Slice {
  void* param = nullptr;
  void* grad = nullptr;          // read; set to zero in the same pass if StepInfo::clear_grad says so
  std::span<void* const> state;  // one run per name of state_names(), in that order, of the same count and dtype as param
  std::size_t count = 0;
  Dtype dtype = Dtype::f32;        // or f64
  double lr_scale = 1;             // of the group
  double weight_decay = 0;         // of the group; a rule's own default_weight_decay() is only what groups start from
  std::span<const double> sums{};  // of its tensor, by round, where the rule needs some
};

// The part [first, first + count) of a slice; state: keeps the pointers that it borrows.
Slice part_of(const Slice& slice, std::size_t first, std::size_t count, std::vector<void*>& state);

struct StepInfo {
  std::int64_t step = 0;  // of this update, counted from 1
  double lr = 0;
  double grad_scale = 1;    // multiplied into every gradient as it is read: clip coefficient, 1 / loss scale, 1 / ranks
  bool clear_grad = false;  // leave zeros behind while the line is in the cache: saves a pass
};

// Sums over whole tensors that a rule needs before it updates any part of one.
struct Needs {
  int rounds = 0;      // a later one is measured when the values of those before it are known, and how gradients are clipped
  int per_tensor = 0;  // sums in each of them
  std::size_t sums() const { return static_cast<std::size_t>(rounds) * static_cast<std::size_t>(per_tensor); }
};

class Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  virtual std::vector<std::string> state_names() const = 0;                // torch's names; may depend on the parameters
  virtual double initial_state(std::size_t /*index*/) const { return 0; }  // every element of that state before step 1
  virtual Needs needs() const { return {}; }
  virtual double default_lr() const = 0;
  virtual double default_weight_decay() const = 0;
  const std::string& spec() const { return spec_; }  // canonical, every parameter spelled out: for checkpoints

  void update(const Slice& slice, const StepInfo& info) const;  // checks, then one fused pass over memory
  // Adds what the slice contributes to its tensor's sums of this round; reads only. It begins with its tensor, or whole blocks of measuring
  // behind that (measure.h), so that however a tensor is cut its sums have the same bits. slice.sums: of the rounds before. In round 0
  // info.grad_scale is not final, and not looked at.
  void measure(int round, const Slice& slice, const StepInfo& info, std::span<ExactSum> sums) const;

 private:
  friend std::unique_ptr<Optimizer> make(std::string_view spec);
  virtual void apply(const Slice& slice, const StepInfo& info) const = 0;  // count > 0 and everything checked
  virtual void add_sums(int /*round*/, const Slice& /*slice*/, const StepInfo& /*info*/, std::span<ExactSum> /*sums*/) const {}  // likewise
  std::string spec_;
};

// "sgd(lr=0.1, momentum=0.9, nesterov=true)", "adam", ... Kind::usage with the column, or with the known names.
std::unique_ptr<Optimizer> make(std::string_view spec);

// Bytes one update moves between memory and processor: param and states read and written, grad read (and written when cleared). Measuring
// comes on top.
std::size_t bytes_per_element(const Optimizer& rule, Dtype dtype, bool clear_grad);

}  // namespace cohort::optim
