// A Walker walks one plan over links a little at a time, so that several can be under way at once (walk.h walks one from end to end).
// Each has a lane: messages of different lanes never meet. Steps are not cut up: plans of a Walker are about chunks that are small already.
// Owner: who runs the operation. Threads: that one. Failure: as Peers.
#pragma once
#include <span>
#include <vector>

#include "cohort/collective/walk.h"

namespace cohort::collective {

class Walker {
 public:
  // members: which member of `peers` each rank of the plan is. scratch: room for `data`, ours until we are done; as is data.
  Walker(Peers& peers, std::span<const int> members, int lane, Piece data, const Reduction& how, Plan plan, std::byte* scratch);
  // Posts the first receive, where that needs nothing of ours: a large message that comes before it is asked for keeps what lies behind it
  // waiting. Any time before the first advance().
  void expect();
  bool advance();               // as far as it goes without waiting; true when done
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
  const int lane_;
  const Piece data_;
  const Reduction how_;
  const Plan plan_;
  std::byte* const scratch_;
  std::size_t at_ = 0;     // the step under way
  bool begun_ = false;     // its messages are on their way
  bool expected_ = false;  // its receive is posted already
  net::Pending incoming_;  // of this step
  std::vector<Outgoing> outgoing_;
};

}  // namespace cohort::collective
