// The two passes over the buckets that make a step; step.cc tells them in order.
//   carry()               gradients of a bucket are reduced over the ranks: on a lane while backward still runs, or by the calling thread
//   update(), publish()   after the vote: parameters are updated, and reach the ranks that read them
// Before the vote no parameter has changed.
// Threads: one at a time for a bucket. Failure: as the communicator's.
#pragma once
#include <memory>
#include <vector>

#include "cohort/engine/bucket.h"
#include "cohort/optim/exact_sum.h"
#include "cohort/optim/optimizer.h"
#include "cohort/sync/strategy.h"

namespace cohort::engine {

using sync::Decision;

struct StepSeconds {
  double reduce = 0, wait = 0, update = 0;  // of one step: reducing gradients, of which waiting for other ranks; updating
};

// What both passes work with.
struct StepContext {
  sync::Strategy& strategy;
  const optim::Optimizer* rule = nullptr;  // none: gradients are reduced and left to the caller
  bool early_update = false;
  bool measure_before = false;
  bool in_lane = true;     // beside backward, which has the rank's threads
  std::uint64_t seed = 0;  // of the job, for codecs that draw
  int mean_of = 0;         // sync::Wire
  Rank me{};
};

// What one pass over the gradients is for.
struct ReductionPass {
  optim::StepInfo step{};
  bool last = true;  // of an accumulated step; before it gradients are reduced and added, no more
  sync::SyncSchedule schedule{};
  std::int64_t number = 1;  // of the step, as schedules count
};

// What codecs must know of a step: what a unit of the gradient moves a parameter by.
inline sync::CodedStep coded_step(const optim::StepInfo& step, std::uint64_t seed) {
  return {.weight = step.lr * step.grad_scale, .unit = step.grad_scale, .seed = seed, .step = step.step};
}

// What reducing a bucket found out.
struct BucketReport {
  const Bucket* bucket = nullptr;
  optim::ExactSum before;  // squared norm of this rank's own gradients, when asked for
  optim::ExactSum after;   // of the reduced ones that this rank owns
  bool finite = true;      // all of those
  // Of a bucket on a GPU: what measures them there, to be read when its stream has come so far; none: nothing was asked for.
  const optim::GpuMeasure *gpu_before = nullptr, *gpu_after = nullptr;
  StepSeconds seconds;
};

void read_measures(std::vector<BucketReport>& reports);  // waits for GPUs, once
BucketReport carry(Bucket& bucket, const StepContext& context, sync::Wire wire, const ReductionPass& pass);
// A parameter that is missing stays as it is. decision.clip is in the step's scale already.
void update(Bucket& bucket, const StepContext& context, const optim::StepInfo& step, const Decision& decision);
void publish(Bucket& bucket, const StepContext& context, const sync::Wire& wire);

}  // namespace cohort::engine
