// One measured rank of `cohort bench`: every rank of a communicator calls run_task() with the same options; rank 0 gets the text.
// Threads: one per rank. Failure: Kind::corrupt when a result is wrong, else the communicator's own.
#pragma once
#include <string>

#include "cohort/bench/options.h"
#include "cohort/collective/communicator.h"

namespace cohort::bench {

// options.worker_task: measure (one JSON line per size), explain (text), calibrate (one JSON line of constants). Empty on ranks above 0.
std::string run_task(collective::Communicator& world, const BenchOptions& options);

// The process that `cohort bench` starts as a rank: joins its job, runs its task, writes to options.worker_out.
int worker_main(const BenchOptions& options);

}  // namespace cohort::bench
