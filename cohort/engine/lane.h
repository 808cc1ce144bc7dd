// Lanes carry buckets: the story of a training step is in lane.cc.
// A step has two sweeps. carry(): gradients of a bucket are agreed upon, on a lane while backward still runs, or by the calling thread.
// settle(): after the vote, parameters are updated and published. Before the vote nothing has changed.
// Owner: Engine. Threads: each Lane has one thread and one communicator of its own and takes its buckets in plan order, so that ranks
// cannot deadlock by order. Failure: the first one is kept and thrown by await(); later steps throw it again.
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cohort/optim/exact_sum.h"
#include "cohort/optim/optimizer.h"
#include "cohort/sync/strategy.h"

namespace cohort::engine {

struct Seconds3 {
  double agree = 0, wait = 0, update = 0;  // of one step: carrying, of which waiting for other ranks; updating
};

// What both sweeps work with.
struct Crew {
  sync::Strategy& strategy;
  const optim::Optimizer* rule = nullptr;  // none: gradients are agreed upon and left to the caller
  bool early_update = false;
  bool measure_before = false;
  bool in_lane = true;       // beside backward, which has the rank's threads
  bool all_own_all = false;  // parameters and gradients: ranks share the measuring of what they agreed on
};

// What one sweep over the buckets is about.
struct Sweep {
  optim::StepInfo step{};
  bool last = true;  // of an accumulated step; before it gradients are agreed upon and added, no more
};

// What a bucket's carrying found out.
struct Report {
  const sync::Bucket* bucket = nullptr;
  optim::ExactSum before;  // squared norm of this rank's own gradients, when asked for
  optim::ExactSum after;   // of the agreed ones that this rank owns
  bool finite = true;      // all of those
  Seconds3 seconds;
};

// missing: by a parameter's order; true: no rank had a gradient for it, and it stays as it is. Empty: none is missing.
void update(sync::Bucket& bucket, const Crew& crew, const optim::StepInfo& step, const std::vector<bool>& missing);
Report carry(sync::Bucket& bucket, const Crew& crew, const sync::Wire& wire, const Sweep& sweep);
void settle(sync::Bucket& bucket, const Crew& crew, const sync::Wire& wire, const optim::StepInfo& step,
            const std::vector<bool>& missing = {});

class Lane {
 public:
  Lane(int index, std::unique_ptr<collective::Communicator> comm, Crew crew);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void expect(std::vector<sync::Bucket*> buckets, const Sweep& sweep);  // in plan order
  void ready(const sync::Bucket* bucket);                               // its last gradient has arrived
  std::vector<Report> await();                                          // until all are carried
  // Until there is room, looked at whenever a bucket was carried, or the lane has nothing to do until more gradients arrive.
  void await_room(const std::function<bool()>& room);

 private:
  void run();

  const int index_;
  const std::unique_ptr<collective::Communicator> comm_;
  const Crew crew_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<sync::Bucket*> buckets_;  // guarded by mutex_, as all below
  std::vector<bool> ready_;
  std::vector<Report> reports_;
  Sweep sweep_;
  std::size_t next_ = 0;
  bool carrying_ = false, stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace cohort::engine
