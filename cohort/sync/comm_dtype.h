// Gradients that are sent in 16 bits (engine.comm_dtype): half the bytes, every gradient rounded to bf16 or fp16. comm_sum_dtype:
//   comm     the bucket is rounded, reduced in that type (rounded at each addition), and converted back
//   fp32     the bucket is rounded; each rank gets its part of every rank's (all-to-all), adds in fp32 in the canonical bracket, rounds the
//            sum once and sends it to all (all-gather): the same bytes, one rounding instead of log2(n). Megatron's
//            reduce_scatter_with_fp32_accumulation
// Either way all ranks end with the same bits. What fp16 cannot hold becomes inf, and the step's vote skips the step.
// Owner: Engine. Threads: as Strategy's. Failure: Kind::usage for a strategy other than all_reduce and for parameters that are not fp32.
#pragma once
#include <memory>

#include "cohort/base/precision.h"
#include "cohort/sync/strategy.h"

namespace cohort::sync {

// The strategy itself where dtype is fp32.
std::unique_ptr<Strategy> with_comm_dtype(std::unique_ptr<Strategy> strategy, Precision dtype, bool sum_in_fp32);

}  // namespace cohort::sync
