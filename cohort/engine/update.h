// A rule's pass over a slice by all the threads that the rank computes with, each over a contiguous run. That is also how backward added
// the gradient up, so a thread mostly meets what its own core wrote: one thread alone spent 44 % of a small network's step on it when a far
// core had written the other half. Elements are independent, so no bit depends on the number of threads. A rule of whole tensors spreads
// the work on one tensor by itself. Threads: the one that runs backward; lanes, which run beside it, update by themselves. Failure: as the
// rule's.
#pragma once
#include "cohort/base/algebra.h"
#include "cohort/optim/optimizer.h"

namespace cohort::engine {

const Algebra& thread_algebra();  // on the threads that the rank computes with

void update_by_all(const optim::Optimizer& rule, const optim::Slice& slice, const optim::StepInfo& step);

}  // namespace cohort::engine
