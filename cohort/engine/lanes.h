// Lanes decides who carries which bucket, and when: bucket b goes to lane b mod n as soon as its last gradient has arrived. Without a lane
// the calling thread carries them in plan order: from stage 2 on in backward's hooks, as far as they are complete, else in finish().
// Owner: Engine. Threads: the one that trains. Failure: a lane's first one, from await_carried(); without a lane as carry()'s.
#pragma once
#include <memory>
#include <vector>

#include "cohort/engine/bucket_plan.h"
#include "cohort/engine/gradient_arrivals.h"
#include "cohort/engine/lane.h"

namespace cohort::engine {

class Lanes {
 public:
  // buckets, arrivals: the engine's. in_hooks: without a lane, a complete bucket is carried at once.
  // comms: of the calling thread.
  Lanes(collective::Communicator& comm, const MeshSpans& spans, const SpanComms& comms, const Buckets& buckets, ArrivalCounter& arrivals,
        StepContext context, bool in_hooks)
      : comm_(comm), spans_(spans), comms_(comms), buckets_(buckets), arrivals_(arrivals), context_(context), in_hooks_(in_hooks) {}

  // Collective: every rank opens as many lanes as the one with the fewest, since hosts may differ in cores. forced: the user's number.
  void open(LaneChoice mine, bool forced);
  void close() { lanes_.clear(); }
  bool empty() const { return lanes_.empty(); }
  const LaneChoice& choice() const { return choice_; }

  void expect(const ReductionPass& pass);                     // a backward begins whose gradients are carried
  void ready(std::size_t bucket, const ReductionPass& pass);  // its last gradient has arrived
  // Before a bucket starts to fill: waits while as many are in flight as lanes can carry, unless they wait for gradients themselves.
  void wait_for_buffer(const sync::BufferPool& pool);
  std::vector<BucketReport> await_carried(const ReductionPass& pass);  // until all buckets are, complete or not

 private:
  void carry_ready(const ReductionPass& pass);
  Lane& lane_of(std::size_t bucket) { return *lanes_[bucket % lanes_.size()]; }

  collective::Communicator& comm_;
  const MeshSpans& spans_;
  const SpanComms& comms_;
  const Buckets& buckets_;
  ArrivalCounter& arrivals_;
  const StepContext context_;
  const bool in_hooks_;
  LaneChoice choice_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<BucketReport> carried_;  // without a lane, in this backward
};

}  // namespace cohort::engine
