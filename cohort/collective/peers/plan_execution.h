// A PlanExecution runs one plan over links incrementally, so that several can be in flight at once (execute_plan.h runs one from end to
// end). Each has a flow: messages of different flows are matched apart. Steps are not cut into segments: plans of a PlanExecution are about
// chunks that are small already. Owner: who runs the operation. Threads: that one. Failure: as Peers.
#pragma once
#include <span>
#include <vector>

#include "cohort/collective/peers/execute_plan.h"

namespace cohort::collective {

class PlanExecution {
 public:
  // members: which member of `peers` each rank of the plan is. scratch: as large as `data`; both are ours until we are done.
  PlanExecution(Peers& peers, std::span<const int> members, int flow, Piece data, const Reduction& how, Plan plan, std::byte* scratch);
  // Posts the first receive, where that needs nothing of ours: a large message that comes before its receive is posted holds up those
  // behind it. Any time before the first advance().
  void post_early();
  bool advance();               // as far as possible without waiting; true when done
  void wait(Seconds a_little);  // for what it needs next, at most that long; throws when the operation's deadline has passed

 private:
  struct Outgoing {
    Range range;
    net::Pending pending;
  };
  const Step& step() const { return plan_[at_]; }
  bool receives() const { return step().from >= 0 && step().recv.size() > 0; }
  bool reduces() const { return receives() && step().arrival != Arrival::copy; }
  void post_receive();
  void begin_step();
  Outgoing* in_the_way(Range range);
  net::Pending* needed_next();
  void take();

  Peers& peers_;
  const std::span<const int> members_;
  const int flow_;
  const Piece data_;
  const Reduction how_;
  const Plan plan_;
  std::byte* const scratch_;
  std::size_t at_ = 0;         // the running step
  bool begun_ = false;         // its messages are on their way
  bool posted_early_ = false;  // its receive is posted already
  net::Pending incoming_;      // of this step
  std::vector<Outgoing> outgoing_;
};

}  // namespace cohort::collective
