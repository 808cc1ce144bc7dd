// Gradients that travel in 16 bits: half the bytes on the wire, every gradient rounded to bf16 or fp16.
//   wire     the bucket is rounded, reduced in the wire's type (rounded at each addition), and widened again
//   fp32     the bucket is rounded; each rank gets its part of everybody's (all-to-all), adds in fp32 in the canonical bracket, rounds the
//            sum once and hands it to all (all-gather): the same bytes, one rounding instead of log2(n). Megatron's
//            reduce_scatter_with_fp32_accumulation
// Either way all ranks end with the same bits. What fp16 cannot hold becomes inf, and the step's vote calls the step off.
// Owner: Engine. Threads: as Strategy's. Failure: Kind::usage for a strategy other than all_reduce and for parameters that are not fp32.
#pragma once
#include <memory>

#include "cohort/base/precision.h"
#include "cohort/sync/strategy.h"

namespace cohort::sync {

// The strategy itself where the wire is fp32.
std::unique_ptr<Strategy> narrowed(std::unique_ptr<Strategy> strategy, Precision wire, bool sum_in_fp32);

}  // namespace cohort::sync
