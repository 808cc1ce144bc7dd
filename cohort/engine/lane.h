// A Lane is a thread that reduces buckets while backward still runs, over a communicator of its own. It takes its buckets in plan order,
// so that ranks cannot deadlock by order.
// Owner: Lanes. Threads: the one that trains calls; the lane's own runs carry(). Failure: the first one is kept and thrown by await();
// later steps throw it again.
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cohort/engine/mesh_spans.h"
#include "cohort/engine/step.h"

namespace cohort::engine {

class Lane {
 public:
  Lane(int index, SpanComms comms, StepContext context);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void expect(std::vector<Bucket*> buckets, const ReductionPass& pass);  // in plan order
  void ready(const Bucket* bucket);                                      // its last gradient has arrived
  std::vector<BucketReport> await();                                     // until all are carried
  // Until there is a free buffer, looked at whenever a bucket was carried, or the lane has nothing to do until more gradients arrive.
  void await_buffer(const std::function<bool()>& buffer_free);

 private:
  void run();

  const int index_;
  const SpanComms comms_;
  const StepContext context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Bucket*> buckets_;  // guarded by mutex_, as all below
  std::vector<bool> ready_;
  std::vector<BucketReport> reports_;
  ReductionPass pass_;
  std::size_t next_ = 0;
  bool carrying_ = false, stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace cohort::engine
