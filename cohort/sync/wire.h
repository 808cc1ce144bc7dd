// A Wire is the way a bucket takes to other ranks: the communicator of the lane that carries it, the deadline, and what a codec must know
// of the step. Strategies say what travels; placement and codec decide how. Owner: values; the communicator is borrowed. Threads: one at a
// time for a communicator. Failure: the communicator's, which names the bucket.
#pragma once
#include <optional>

#include "cohort/cuda/runtime.h"
#include "cohort/sync/bucket.h"

namespace cohort::sync {

struct Wire {
  collective::Communicator* comm = nullptr;
  std::optional<Deadline> deadline{};
  CodedStep step{};
  std::int64_t number = 1;  // of the step, as Strategy::schedule() counts: all ranks have the same, also those that skip one
  int mean_of = 0;          // what a mean divides by, where it is not the communicator's ranks: those of dp, on a mesh

  collective::Call call(const Bucket& bucket) const {
    return {.name = bucket.name(), .deadline = deadline, .stream = cuda::current_stream()};
  }
  // Gradients become their sum or average, on all ranks or each rank's piece on its owner, as the placement says. Without a codec it is the
  // collective itself, and nothing is copied.
  void reduce(Bucket& bucket, collective::Op op) const;
  void gather(Bucket& bucket) const;                        // parameters: every rank's piece to all
  void average(Bucket& bucket, const Piece& values) const;  // over the ranks, in place
  void sum(Bucket& bucket, const Piece& values) const;
};

}  // namespace cohort::sync
