// What a collective costs between the ranks of a plan, in seconds.
//   given (--link, --latency) halving-doubling: all_reduce 2 (N-1)/N bytes / rate + 2 ceil(log2 N) latency; half of it for either half
//   this machine              the cost model of collective/cost.h with its measured constants: shared memory, reduced in place
// Threads: pure. Failure: none.
#pragma once
#include <optional>
#include <string>

#include "cohort/collective/cost/cost.h"

namespace cohort::plan {

struct LinkSpeed {
  double rate = 0;     // bytes a second, one way, of one rank
  double latency = 0;  // seconds of a message
};

struct Links {
  int ranks = 1;
  int cores = 1;                          // of this host; counts only without a link_speed
  std::optional<LinkSpeed> link_speed{};  // none: this machine's shared memory
  collective::Calibration constants{};    // of the cost model

  double all_reduce(double bytes) const;
  double reduce_scatter(double bytes) const { return all_reduce(bytes) / 2; }  // all of `bytes` go in, a share comes out
  double all_gather(double bytes) const { return all_reduce(bytes) / 2; }      // a share goes in, all of `bytes` come out
  double vote() const { return all_reduce(8 * sizeof(double)); }
  double ranks_per_core() const;  // ranks per core, at least 1; with a link_speed every rank has a machine of its own
  std::string text() const;       // for people
};

}  // namespace cohort::plan
