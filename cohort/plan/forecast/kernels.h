// Every distinct kernel call of a model, measured once and alone: what shapes it returns, how long it takes, what scratch it needs.
// Timed: run on made-up operands of the real shapes and strides, the best of several runs, with as many threads as the rank would have.
// Not timed (another machine is planned for): shapes come from torch's meta kernels where it has them, seconds from operations and bytes.
// No weight, no sample and no gradient of the model is ever touched. Owner: the caller. Threads: one. Failure: torch's own.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cohort::plan::forecast {

struct Device {
  double flops = 0, bytes = 0;  // a second, of matrix products and of memory
};

struct Call {
  double seconds = 0;
  double flops = 0;             // of matrix products and convolutions, forward and backward
  double bytes = 0;             // of operands and results
  std::size_t scratch = 0;      // allocated inside and freed before it returned
  torch::jit::Stack results;    // tensors of the right shape: on the meta device, no memory
  torch::jit::Stack arguments;  // likewise
  std::optional<c10::OperatorHandle> op;
  bool cold = false;  // seconds are those of remeasure_cold()
};

class KernelTimings {
 public:
  // device: none, time them here.
  explicit KernelTimings(std::optional<Device> device = std::nullopt);

  // arguments: of the operator; fake tensors among them have no memory.
  const Call& call(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);
  // Times every one of them as it runs within a step: everything else the step touches, so many bytes, has gone through the caches before.
  // The first time they were hot; from the second call on the faster time counts, since a burst of other work does not last.
  void remeasure_cold(std::size_t working_set);
  void clocked(bool on) { clocked_ = on; }  // off: shapes only, as while a model is built

  std::size_t distinct() const { return calls_.size(); }
  // Since restart(): seconds of all calls and of autograd around them, and operations.
  double clock() const { return total_ + nodes_ * per_node_; }
  double total_flops() const { return total_flops_; }
  void restart() { total_ = total_flops_ = nodes_ = 0; }
  void passed(int nodes) { nodes_ += clocked_ ? nodes : 0; }  // autograd recorded them, or ran them backward

 private:
  Call measure(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) const;
  static double measure_node();

  const std::optional<Device> device_;
  bool clocked_ = true;
  std::map<std::string, Call> calls_, shapes_;  // by operator, shapes and options; the second without times
  double total_ = 0, total_flops_ = 0, nodes_ = 0;
  const double per_node_;  // what autograd adds to a kernel: recording it, and running it backward. An accelerator's queue hides it
};

// Floating point operations of a matrix product or convolution; 0 for everything else.
double flops_of(const std::string& name, const torch::jit::Stack& arguments, const torch::jit::Stack& results);

}  // namespace cohort::plan::forecast
