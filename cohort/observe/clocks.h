// What a rank's monotonic clock is off rank 0's, for traces of several hosts: rank 0 answers each rank's pings in turn.
//   Trace::set_clock_offset(clock_offset_to_first(comm).offset_ns);      // every rank, at the same moment
// Ranks of one kernel (the same boot id) read one clock: their offset is 0, exactly, and nothing is sent.
// Owner: values. Threads: one per communicator. Failure: as the communicator's.
#pragma once
#include <functional>

#include "cohort/collective/communicator.h"
#include "cohort/observe/timeline.h"

namespace cohort::observe {

struct ClockSource {
  std::function<std::int64_t()> now_ns;  // this rank's clock
  std::string kernel;                    // ranks with the same word share the clock
};
ClockSource own_clock();

ClockOffset clock_offset_to_first(collective::Communicator& comm, const ClockSource& clock = own_clock());

}  // namespace cohort::observe
