#include "cohort/engine/update.h"

#include <ATen/Parallel.h>

namespace cohort::engine {
namespace {

constexpr std::int64_t kGrain = 32768;  // torch's own for passes over elements: below, waking a thread costs more than it brings

}  // namespace

void update_by_all(const optim::Optimizer& rule, const optim::Slice& slice, const optim::StepInfo& step) {
  at::parallel_for(0, static_cast<std::int64_t>(slice.count), kGrain, [&](std::int64_t first, std::int64_t last) {
    std::vector<void*> state;
    rule.update(optim::part_of(slice, static_cast<std::size_t>(first), static_cast<std::size_t>(last - first), state), step);
  });
}

}  // namespace cohort::engine
