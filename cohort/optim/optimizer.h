// An Optimizer is an update rule without memory of its own: parameters, gradients and state are flat slices that the caller allocates,
// cuts, shards and saves. One rule so serves data parallel, sharded and parameter-server training.
//   auto rule = optim::make("adamw(lr=3e-4, weight_decay=0.1)");        // memory as rule->state(tensor) says; then, every step:
//   rule->update(slice, {.step = t, .lr = schedule.lr(t - 1, total, rule->default_lr(), workers)});
// Law: element i of a slice depends on element i alone, in one fixed order of rounded operations (no fused multiply-add). The bits are
// the same on every instruction set and however a slice is cut. (Where several NaNs meet, which of them comes out is not promised.)
// A rule that scales its step tensor by tensor (lars, lamb) says so in needs(): the caller measures sums over whole tensors first, in
// rounds, and hands their values to update() in Slice::sums; given those, element i depends on element i alone again:
//   rule->measure(0, slice, info, exact);   // every part of the tensor; the sums of all parts added, then their values; then round 1 ..
// A rule that computes with whole tensors (adafactor, muon) says Grain::tensor: every slice is one tensor, whole, wherever it lies; its
// state may have any shape. The same tensor gives the same bits then, whoever updates it and on any number of threads.
//   std::vector<StateSpec> state = rule->state({"fc.weight", {10, 512}});                    // row_var {10, 1}, col_var {1, 512}
// A rule that looks at layers (taps) or asks other ranks (side) gets its turn in prepare(): side.h.
// A slice may lie on a GPU: rules of single elements are compiled for both from one file, and give the same bits (gpu_elementwise.cuh).
// Owner: whoever called make(). Threads: any number at once, on slices that do not overlap.
// Failure: Kind::usage before anything is written.
// To add a rule: rule/<word>.cc with its formula and `row_<word>`, the word in rule/CMakeLists.txt, rule/<word>_test.cc.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/algebra.h"
#include "cohort/base/piece.h"
#include "cohort/optim/tensor_info.h"

namespace cohort::optim {

class ExactSum;
class Side;

using cohort::size_of;
using Real = Dtype;  // f32 or f64: what updates are made in

// One contiguous run of elements that this rank owns, all of one parameter group. Borrowed for the call; the runs must not overlap.
struct Slice {
  void* param = nullptr;
  void* grad = nullptr;          // read; set to zero in the same pass if StepInfo::clear_grad says so
  std::span<void* const> state;  // one run for each of state(), in that order; of a state like its tensor the part that param is
  std::size_t count = 0;
  Dtype dtype = Dtype::f32;               // or f64
  double lr_scale = 1;                    // of the group
  double weight_decay = 0;                // of the group; a rule's own default_weight_decay() is only what groups start from
  std::span<const double> sums{};         // of its tensor, by round, where the rule needs some
  std::string_view name{};                // of its tensor
  std::span<const std::int64_t> shape{};  // likewise
  std::size_t first = 0;                  // its first element, counted from the tensor's
  Device device{};                        // where all of that lies; a GPU's: the update is enqueued on the thread's stream (cuda/runtime.h)
};

// The part [first, first + count) of a slice; state: keeps the pointers that it borrows.
Slice part_of(const Slice& slice, std::size_t first, std::size_t count, std::vector<void*>& state);

struct StepInfo {
  std::int64_t step = 0;  // of this update, counted from 1
  double lr = 0;
  double grad_scale = 1;    // multiplied into every gradient as it is read: clip coefficient, 1 / loss scale, 1 / ranks
  bool clear_grad = false;  // leave zeros behind while the line is in the cache: saves a pass
  double loss = std::numeric_limits<double>::quiet_NaN();  // of this step's samples, their mean; NaN: not known, or before the vote
  const Algebra* algebra = nullptr;  // what spreads the work on a whole tensor over threads; none: the calling one does it
};

// A state of one tensor.
struct StateSpec {
  std::string name;     // torch's
  cohort::Shape shape;  // the tensor's own: it is cut where the tensor is; any other only with Grain::tensor
  Dtype dtype = Dtype::f32;
  double initial = 0;  // every element before step 1
};

// Where a tensor may be cut between ranks: behind any block of measuring (measure.h), or not at all.
enum class Grain : std::uint8_t { block, tensor };

// What a rule needs before it updates any part of a tensor.
struct Needs {
  Grain grain = Grain::block;
  int rounds = 0;  // of sums over whole tensors; a later one is measured when the values of those before it are known, and how gradients
                   // are clipped
  int per_tensor = 0;  // sums in each of them
  bool taps = false;   // what layers saw: side.h
  bool side = false;   // prepare() without them: other ranks, threads in the background
  bool loss = false;   // StepInfo::loss, of all ranks
  std::size_t sums() const { return static_cast<std::size_t>(rounds) * static_cast<std::size_t>(per_tensor); }
};

class Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  virtual std::vector<std::string> state_names() const = 0;                // that any tensor has; may depend on the parameters
  virtual double initial_state(std::size_t /*index*/) const { return 0; }  // every element of that state before step 1
  virtual std::vector<StateSpec> state(const TensorInfo& tensor) const;    // of this tensor: all of those, like it, unless a rule says else
  virtual Needs needs() const { return {}; }
  virtual double default_lr() const = 0;
  virtual double default_weight_decay() const = 0;
  // Of rules whose needs() say so: before the step's vote, on all ranks together, when gradients are reduced and nothing has changed. What
  // it finds out must not count before update(), which is not called for a step that is called off.
  virtual void prepare(Side& /*side*/) {}
  // Of rules with taps: whether they look at layers in this step. Where not, layers run unwatched and prepare() finds them with nothing
  // seen.
  virtual bool watches(std::int64_t /*step*/) const { return needs().taps; }
  const std::string& spec() const { return spec_; }      // canonical, every parameter spelled out: for checkpoints
  bool runs_on_gpus() const { return gpu_ != nullptr; }  // of slices there; in a build without nvcc none does

  void update(const Slice& slice, const StepInfo& info) const;  // checks, then one fused pass over memory
  // Adds what the slice contributes to its tensor's sums of this round; reads only. It begins with its tensor, or whole blocks of measuring
  // behind that (measure.h), so that however a tensor is cut its sums have the same bits. slice.sums: of the rounds before. In round 0
  // info.grad_scale is not final, and not looked at.
  void measure(int round, const Slice& slice, const StepInfo& info, std::span<ExactSum> sums) const;

 private:
  friend std::unique_ptr<Optimizer> make(std::string_view spec);
  virtual void apply(const Slice& slice, const StepInfo& info) const = 0;  // count > 0 and everything checked
  virtual void add_sums(int /*round*/, const Slice& /*slice*/, const StepInfo& /*info*/, std::span<ExactSum> /*sums*/) const {}  // likewise
  const Optimizer& on(const Slice& slice) const;  // what updates a slice that lies there
  std::string spec_;
  std::unique_ptr<Optimizer> gpu_;  // the same rule, compiled for GPUs
};

// Whether a slice is all of its tensor.
bool is_whole(const Slice& slice);

// "sgd(lr=0.1, momentum=0.9, nesterov=true)", "adam", ... Kind::usage with the column, or with the known names.
std::unique_ptr<Optimizer> make(std::string_view spec);

// Elements of state for each element of the parameter, of a tensor of this shape.
double state_per_element(const Optimizer& rule, const cohort::Shape& shape);

// Bytes one update moves between memory and processor: param and states read and written, grad read (and written when cleared). Measuring
// comes on top.
std::size_t bytes_per_element(const Optimizer& rule, Dtype dtype, bool clear_grad);

}  // namespace cohort::optim
