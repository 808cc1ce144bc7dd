#include "cohort/engine/update.h"

#include <ATen/Parallel.h>

namespace cohort::engine {
namespace {

constexpr std::int64_t kGrain = 32768;  // torch's own for passes over elements: below, waking a thread costs more than it brings

void* from(void* run, std::int64_t first, optim::Real dtype) {
  return static_cast<std::byte*>(run) + static_cast<std::size_t>(first) * optim::size_of(dtype);
}

}  // namespace

void update_by_all(const optim::Optimizer& rule, const optim::Slice& slice, const optim::StepInfo& step) {
  at::parallel_for(0, static_cast<std::int64_t>(slice.count), kGrain, [&](std::int64_t first, std::int64_t last) {
    optim::Slice part = slice;
    std::vector<void*> state;
    for (void* const run : slice.state) state.push_back(from(run, first, slice.dtype));
    part.state = state;
    part.param = from(slice.param, first, slice.dtype);
    part.grad = from(slice.grad, first, slice.dtype);
    part.count = static_cast<std::size_t>(last - first);
    rule.update(part, step);
  });
}

}  // namespace cohort::engine
