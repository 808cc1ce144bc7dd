// A Strategy says how ranks train together: which gradients they reduce, which models they exchange and when, and what they promise.
// In the order of a step (engine/step.cc):
//   schedule()          pure: what this step does beside its own update
//   reduce_gradients()  when the last gradient of a bucket has arrived, in steps that the world commits
//   exchange_models()   models travel, from and to slots of their own: live memory is never sent, so nothing races with the update; behind
//                       the update a rank may go on with its own model, too
//   mix_models()        after the vote that ends a sync round: what came changes the parameters
//   publish()           updated parameters reach the ranks that read them
// Where servers keep the parameters (Semantics::served) a rank makes no update: reduce_gradients() pushes, mark() says whether that counts,
// publish() pulls what is new, and quiesce() brings this rank to what the servers have.
// Between two sync rounds the replicas of some strategies drift. consensus() is the one model that the job stands for then.
// Owner: Engine. Threads: reduce_gradients() and exchange_models() may run for different buckets at once on different lanes, each with its
// lane's communicator; all else is the training thread's. Failure: as the communicator's.
// To add one: strategies/<word>.cc with its formula and `row_<word>`, the word in strategies/CMakeLists.txt, strategies/<word>_test.cc. The
// laws of strategy_laws_test.cc, and of engine/strategies_test.cc, hold it to what its row declares.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/state.h"
#include "cohort/sync/decision.h"
#include "cohort/sync/wire.h"

namespace cohort::sync {

enum class Scope : std::uint8_t { world, self };
std::string_view name_of(Scope scope);

// What a lost rank costs.
enum class Guarantee : std::uint8_t {
  step,        // a step is whole or not at all: nothing is lost
  sync_round,  // a round of synchronisation is: the lost rank's own steps since the last one
  push,        // what it pushed and was not acknowledged
  none,        // what it held; its own step was whole
};
std::string_view name_of(Guarantee guarantee);

struct Semantics {
  Scope commit_scope = Scope::world;  // who decides a step together
  Scope identical = Scope::world;     // who holds the same parameters after every step
  Scope sync_scope = Scope::self;     // who decides a sync round together; self: there are none
  Guarantee guarantee = Guarantee::step;
  std::int64_t stale = 0;  // steps that a gradient's parameters may lie behind the newest; kUnbounded: any number
  static constexpr std::int64_t kUnbounded = -1;
  bool averages = true;  // the gradient of an update is a mean over ranks, or a rank's own; false: a sum over the ranks
  bool served = false;   // servers keep the parameters and make the updates; a rank's are a copy, up to `stale` steps old
  bool drifts() const { return identical == Scope::self && !served; }
};

// What one step does, beside this rank's own update. The same on every rank.
struct SyncSchedule {
  Scope commit = Scope::world;
  bool exchanges_before = false;  // models as they are before the update travel, while backward runs
  bool exchanges_after = false;   // as they are after it
  bool ends_round = false;        // mix_models() follows, with what has travelled in this step or some steps before
};

// Memory beside the parameters, as large as they are, that a strategy keeps; or of one element for each tensor.
struct SlotSpec {
  std::string name;
  bool in_communicator = false;  // peers read it in place
  bool kept = true;              // is state: saved and carried; false: scratch of a step
  Share share = Share::identical;
  Merge merge = Merge::copy;
  enum class Begins : std::uint8_t { zero, one, parameters } begins = Begins::zero;
  bool per_tensor = false;
};
void begin_slot(Bucket& bucket, const SlotSpec& slot);                // it is open
void begin_anew(Bucket& bucket, const std::vector<SlotSpec>& slots);  // those of Merge::drop

struct Site {  // where a strategy is opened
  collective::Communicator& comm;
  std::span<Bucket* const> buckets;
  const optim::Optimizer* rule = nullptr;
};

// How far behind what a rank has read was, in steps, since it was last asked.
struct Staleness {
  double mean = 0;
  std::int64_t most = 0;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;
  virtual Semantics semantics() const { return {}; }
  virtual Placement placement(Rank me, int ranks) const { return {.ranks = ranks, .me = me.value}; }  // of every bucket
  virtual std::vector<SlotSpec> slots() const { return {}; }                                          // of every bucket
  // Elements that a rank receives in a step, on average, of a model of so many. What Communicator::moved() counts.
  virtual double cost(double elements, int ranks) const = 0;

  virtual void open(Site& /*site*/) {}  // collective: buckets are there, with their slots; once
  // A step begins; those of several backwards once for each. Not a collective.
  virtual void begin_step() {}
  // Between two steps, before parameters and slots are read or written by others than the step: what other ranks have mixed into this
  // rank's model until now is in the parameters, and nobody changes it before the next begin_step(). Not a collective; again: nothing.
  virtual void settle() {}
  virtual SyncSchedule schedule(std::int64_t /*step*/) const { return {}; }
  virtual void reduce_gradients(Bucket& /*bucket*/, const Wire& /*wire*/) {}
  virtual void exchange_models(Bucket& /*bucket*/, const Wire& /*wire*/) {}
  virtual void mix_models(Bucket& /*bucket*/, const Decision& /*decision*/) {}
  virtual void mark(Bucket& /*bucket*/, const optim::StepInfo& /*step*/, const Decision& /*decision*/, const Wire& /*wire*/) {}
  virtual Piece exchanged(const Bucket& /*bucket*/) const {
    return {};
  }  // what mix_models() will read: a round of what is not finite ends there
  virtual void publish(Bucket& bucket, const Wire& wire);
  // Collective: what this rank owns was written from elsewhere, and reaches those that read it.
  virtual void publish_loaded(Bucket& bucket, const Wire& wire) { publish(bucket, wire); }
  // Collective, between two steps: parameters and the rule's state of this rank become what the servers have.
  virtual void quiesce(Bucket& /*bucket*/, const Wire& /*wire*/) {}
  virtual std::optional<Staleness> staleness() { return {}; }
  virtual std::string refusal_of(const optim::Optimizer& /*rule*/) const { return {}; }  // why it cannot make the updates here
  // Collective, between two steps: the model that this job stands for, into memory of the communicator of all of the bucket's elements.
  virtual void consensus(Bucket& bucket, const Piece& into, const Wire& wire);
  // Parameters were set from elsewhere, to the same on every rank: a new beginning.
  virtual void adopt(Bucket& bucket) { begin_anew(bucket, slots()); }

  bool averages() const { return semantics().averages; }
};

// "all_reduce", "all_reduce(op=sum)", "zero(stage=2)". Kind::usage with the known names.
std::unique_ptr<Strategy> make(std::string_view spec);

}  // namespace cohort::sync
