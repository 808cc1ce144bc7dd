#include "cohort/engine/update.h"

#include <ATen/Parallel.h>

namespace cohort::engine {
namespace {

constexpr std::int64_t kGrain = 32768;  // torch's own for passes over elements: below, waking a thread costs more than it brings

class ThreadAlgebra final : public Algebra {
 public:
  void run(std::size_t jobs, const std::function<void(std::size_t)>& job) const override {
    at::parallel_for(0, static_cast<std::int64_t>(jobs), 1, [&](std::int64_t first, std::int64_t last) {
      for (; first < last; ++first) job(static_cast<std::size_t>(first));
    });
  }
};

void update_whole(const optim::Optimizer& rule, const optim::Slice& slice, optim::StepInfo step) {
  step.algebra = &thread_algebra();
  rule.update(slice, step);
}

}  // namespace

const Algebra& thread_algebra() {
  static const ThreadAlgebra algebra;
  return algebra;
}

void update_by_all(const optim::Optimizer& rule, const optim::Slice& slice, const optim::StepInfo& step) {
  if (slice.device.kind == DeviceKind::cuda) return rule.update(slice, step);  // its threads are the GPU's
  if (rule.needs().grain == optim::Grain::tensor) return update_whole(rule, slice, step);
  at::parallel_for(0, static_cast<std::int64_t>(slice.count), kGrain, [&](std::int64_t first, std::int64_t last) {
    std::vector<void*> state;
    rule.update(optim::part_of(slice, static_cast<std::size_t>(first), static_cast<std::size_t>(last - first), state), step);
  });
}

}  // namespace cohort::engine
