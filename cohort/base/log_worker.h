// The name that lines of the log begin with in an elastic job, where a process keeps its number and changes its rank: "worker 2 (rank 0)".
// Owner: the process. Threads: any. Failure: none.
#pragma once
#include "cohort/base/ids.h"

namespace cohort {

void set_log_worker(int worker, Rank rank);  // kNoRank: it has none yet. Replaces the name that set_log_rank() gave

}  // namespace cohort
