// GradScaler keeps small gradients alive in 16 bits: the loss is multiplied with a scale before backward, gradients are divided by it
// before use, and a step whose gradients overflowed is left out and lowers the scale. For any libtorch loop, alone or on many ranks:
//
//   cohort::GradScaler scaler("torch(init=65536)");              // rules: optim/loss_scale.h, docs/precision.md
//   for (...) {
//     optimizer.zero_grad();
//     at::Tensor loss;
//     { const cohort::autocast half(cohort::Precision::fp16);  loss = loss_of(net(x), y); }
//     scaler.scale(loss).backward();
//     scaler.unscale(net->parameters());                         // only where gradients are looked at before the step: clipping
//     scaler.step(optimizer);                                    // unscales what is not yet; does nothing when a gradient is inf or nan
//     scaler.update();                                           // once an iteration
//   }
//
// Given a job or a communicator every verdict is one tiny all-reduce: a step is left out on all ranks or on none (behind DataParallel
// gradients are the same on all ranks, so it needs none). All ranks call in the same order. With several optimizers each steps on the
// verdict over its own parameters, and update() takes all of them into account. Parameters are fp32 or fp64: they are the master weights.
// They may be on GPUs, for which unscale() waits: its answer decides what the program does next.
// Owner: the caller; the communicator must outlive it. Threads: one. Failure: Kind::usage for 16-bit gradients and calls out of order;
// Kind::corrupt from update() for an overflow at the smallest scale; as the communicator's.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cohort/collective/communicator.h"
#include "cohort/optim/loss_scale.h"

namespace cohort::job {
class Job;
}
namespace torch::optim {
class Optimizer;
}

namespace cohort::ddp {

using job::Job;

class GradScaler {
 public:
  explicit GradScaler(std::string_view rule = "torch");
  explicit GradScaler(Job& job, std::string_view rule = "torch");
  explicit GradScaler(collective::Communicator& comm, std::string_view rule = "torch");

  at::Tensor scale(const at::Tensor& loss) const;  // in fp32 at least
  // Divides gradients by the scale, in place, once an iteration however often it is called. Whether all are finite: the same on all ranks.
  bool unscale(const std::vector<at::Tensor>& parameters);
  bool unscale(const torch::optim::Optimizer& optimizer);
  bool step(torch::optim::Optimizer& optimizer);  // whether it stepped
  void update();

  double value() const { return scale_.value(); }
  std::int64_t skipped() const { return scale_.skipped(); }  // iterations with an overflow
  std::string state() const;                                 // one line, with the rule
  void restore(std::string_view state);                      // bit for bit; of another rule: the scale and the count

 private:
  bool finite_on_all(bool finite) const;

  collective::Communicator* comm_ = nullptr;
  optim::LossScale scale_;
  std::unordered_map<const void*, bool> finite_;  // by parameter, of this iteration: what its unscale() found
};

}  // namespace cohort::ddp

namespace cohort {
using ddp::GradScaler;
}  // namespace cohort
