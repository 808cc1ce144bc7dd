// A Publisher sends updated parameters to the ranks that read them while the next step has begun (ZeRO 1 and 2): a thread with
// communicators of its own publishes the buckets in the order in which they were updated, the same on every rank, and a block that is
// about to run waits for the buckets that it reads.
//   publisher.start(bucket, wire);                        // updated; what it holds is not to be written until it has been awaited
//   model.wrap_blocks(publisher.block_wrapper(inner, buckets_of));
// Owner: Engine. Threads: the one that trains; its own publishes. Failure: the first one, from whatever waits for a bucket after it.
#pragma once
#include <functional>
#include <unordered_map>
#include <vector>

#include "cohort/engine/job_thread.h"
#include "cohort/engine/mesh_spans.h"
#include "cohort/nn/blocks.h"
#include "cohort/sync/strategy.h"

namespace cohort::engine {

class Publisher {
 public:
  using BucketsOf = std::function<std::vector<const sync::Bucket*>(const nn::Block&)>;

  Publisher(SpanComms comms, sync::Strategy& strategy, Rank me);
  ~Publisher() { settle(); }  // what was started comes to its end first: other ranks take part in it
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  void start(sync::Bucket& bucket, sync::Wire wire);  // wire: of the step; it gets a communicator of this thread
  void await(const sync::Bucket& bucket);
  void await_all();
  void settle() noexcept;  // until nothing is under way, whether it failed or not
  nn::BlockWrapper block_wrapper(nn::BlockWrapper inner, BucketsOf buckets_of);

 private:
  const SpanComms comms_;
  sync::Strategy& strategy_;
  std::unordered_map<const sync::Bucket*, std::int64_t> under_way_;  // its job
  JobThread thread_;
};

}  // namespace cohort::engine
