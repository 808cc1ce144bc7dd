// The Engine runs the distributed half of a training step: it lays gradients out in buckets, reduces the buckets over the ranks while
// backward runs, holds the step's vote, and updates the parameters.
//   Engine engine(comm, nn::parameters(model), {.strategy = "all_reduce(op=sum)"}, optim::make("sgd(lr=0.1)"));
//   engine.begin(info);            // gradients are in place; `sync` false: accumulate only, nothing is communicated
//   loss.backward();
//   Verdict v = engine.finish();   // reduce, vote, update: the same answer on every rank
// A step is whole or not at all: all buckets are reduced, one vote commits, then parameters change. A gradient that is not finite on any
// rank skips the step on all of them. early_update fuses reduction and update for speed, gives these promises up, and clipping with them. A
// parameter that got no gradient on any rank is not updated (as libtorch skips an undefined gradient); one that got it on some ranks counts
// as zero on the others (early_update cannot know: there a missing gradient is a zero). Frozen parameters (requires_grad false) take no
// part. Tied ones count once.
// With strategy zero (sync/zero.h) a rank holds what its stage says; stages change no bit of the result, except that with accumulation
// stages 2 and 3 add up the reduced gradients of the backwards where 0 and 1 reduce their sum: they communicate in every backward, so all
// ranks call begin() equally often. In stage 3 parameters are gathered and freed with the model's blocks:
// model.wrap_blocks(engine.block_wrapper()). From stage 2 on gradients do not stay in param.grad: they move into the bucket as they arrive.
// Owner: Trainer, DataParallel or Sharded. Threads: one; backward's hooks only count and mark buckets ready (without lanes, from stage 2
// on, they reduce the bucket). Failure: the first one, from finish() or backward, naming the bucket; the engine is useless afterwards.
// The step is in step.cc, the vote in decide.cc, planning of buckets in engine_buckets.cc, checkpoints and buddies in engine_state.cc.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/engine/bucket_plan.h"
#include "cohort/engine/gradient_arrivals.h"
#include "cohort/engine/lanes.h"
#include "cohort/engine/options.h"
#include "cohort/nn/blocks.h"
#include "cohort/optim/groups.h"

namespace cohort::nn {
class Unsharder;
}

namespace cohort::engine {

class ParameterGatherer;
class TensorSums;

struct Parameter {
  std::string name;
  at::Tensor tensor;  // a leaf that requires grad, float or double, on the CPU (on any device with zero(offload=host))
  optim::Group group{};
  int unit =
      -1;  // stage 3: parameters of one unit are gathered and freed together (nn/unshard/unsharder.h); -1: never freed, as in stage 2
};

// Parameters that the same blocks read become a unit.
void assign_units(const nn::Model& model, std::vector<Parameter>& parameters);

struct Verdict {
  bool committed = true;      // false: a gradient was not finite, and nothing was changed
  double squared_before = 0;  // mean over ranks of the squared norm of their own gradients; only with options.norms
  double squared_after = 0;  // of the reduced gradient, before StepInfo::grad_scale and clipping; with early_update only with options.norms
  double clip = 1;           // what gradients were multiplied with to clip them, beside grad_scale
  std::vector<double> sums;  // what the caller gave to finish(), summed over the ranks
  StepSeconds seconds;
};

// open: nothing has changed. undecided: likewise, gradients are reduced, but the result of the vote is not known here. decided.
enum class StepState { open, undecided, decided };

class Engine {
 public:
  // rule: none, the caller updates by itself. cores, ranks_here: of this host, for choosing lanes.
  Engine(collective::Communicator& comm, std::vector<Parameter> parameters, EngineOptions options,
         std::unique_ptr<optim::Optimizer> rule = nullptr, int cores = 1, int ranks_here = 1);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // One backward per begin(). sync false: its gradients are added to those in place, for a later finish().
  void begin(const optim::StepInfo& step, bool sync = true);
  Verdict finish(std::span<const double> sums = {});
  // Called from backward, at the first gradient of a step that synchronises.
  void on_first_gradient(std::function<void()> call) { on_first_ = std::move(call); }
  // Called from finish() when this rank has all that the update needs (gradients and decision()) and nothing has changed: a further vote,
  // of an elastic job. When it throws, finish() does, with the step undecided: finish_step_alone(decision()) may still end it.
  void before_update(std::function<void()> call) { before_update_ = std::move(call); }

  const Buckets& buckets() const { return buckets_; }
  const LaneChoice& lanes() const { return lanes_.choice(); }
  std::size_t bytes_in_flight() const;                     // the most that gradients in flight and gathered parameters took so far
  void set_rate(double lr);                                // of the step under way; not with early_update, where lanes have begin()'s
  bool averages() const { return strategy_->averages(); }  // what a loss must be divided by depends on it
  const optim::Optimizer* rule() const { return rule_.get(); }
  void zero_gradients();
  // Optimizer state by parameter, in the order given. The tensors are views, good until the next finish(). Kind::usage when it is sharded.
  void each_state(const std::function<void(const std::string& parameter, const std::string& state, const at::Tensor& values)>& visit) const;

  // --- stage 3: parameters are unsharded while a block runs, or while an Unsharder::Hold lives
  nn::Unsharder& unsharder() const;                                        // Kind::usage in other stages
  nn::BlockWrapper block_wrapper(nn::BlockWrapper inner = nullptr) const;  // for Model::wrap_blocks(); inner: what runs a block
  // Collective: parameters are whole again, for good; the last thing an engine of stage 3 does: a step after it is Kind::usage. In other
  // stages they always are.
  void make_whole();

  // Elements [first, first + count) of tensors of these sizes, as flat views that may be written, good until the next begin(). state "":
  // the parameter itself.
  using VisitShard = std::function<void(const std::string& parameter, const std::string& state, at::IntArrayRef sizes, std::int64_t first,
                                        std::int64_t count, const at::Tensor& flat)>;

  // --- buddy=true: a lost rank loses nothing (sync/bucket_buddy.cc says why)
  bool has_buddy() const { return sharding().buddy && comm_.size() > 1; }
  StepState step_state() const { return step_state_; }
  const Decision& decision() const { return decision_; }  // of the last step that was decided
  // Not a collective, after finish() failed: ends the step by the outcome of its vote, here or on another survivor, without the others.
  // Without a buddy too: in stage 0 every rank has everything; else it is of use only where all ranks end their own pieces.
  // Own pieces and buddy copies are up to date then; up to stage 2 other elements of the parameters need not be.
  void finish_step_alone(const Decision& decision);
  // As each_shard(), of this rank's copy of what the rank before it has.
  void each_buddy_shard(const VisitShard& visit) const;
  // The rank after `lost` sends its copy back. Collective, on engines of the same layout: those of the survivors, moved to the new
  // ranks' communicator by each_shard(), and a fresh one in the place of the lost.
  void restore_from_buddy(Rank lost);

  // --- for checkpoints
  std::vector<std::string> trained() const;  // names of parameters that have elements
  int stage() const { return stage_; }
  bool shards_state() const { return stage() >= 1; }
  bool shards_parameters() const { return unsharder_ != nullptr; }  // stage 3, until make_whole()
  // What this rank is to save. Over all ranks every element comes once; in stage 0 rank 0 has all. Not a collective.
  void each_shard(const VisitShard& visit) const;
  void publish_loaded_state();  // collective: what was written through each_shard() reaches every rank that holds a copy of it

 private:
  struct Hook;
  void make_buckets(const std::vector<std::size_t>& order);
  void index_buckets();
  void open_gatherer();
  sync::Sharding sharding() const { return strategy_->sharding(comm_.rank(), comm_.size()); }
  StepContext context() const {
    return {.strategy = *strategy_,
            .rule = rule_.get(),
            .early_update = options_.early_update,
            .measure_before = options_.norms,
            .replicated = stage() == 0};
  }
  ReductionPass pass() const { return {step_, syncing_}; }
  void on_gradient(std::size_t parameter);
  void refuse_after_make_whole() const;
  void reorder();
  void reorder_buckets();
  Verdict vote(std::span<const double> sums, const std::vector<BucketReport>& reports, const TensorSums& tensor_sums,
               std::vector<double>& known);
  std::vector<bool> find_missing(double anywhere);
  void measure_rounds(const TensorSums& sums);
  void update_all();
  StepContext update_context() const;  // of the pass after the vote
  optim::StepInfo decided_step() const;
  void visit_pieces(const VisitShard& visit, bool buddy) const;

  collective::Communicator& comm_;
  const EngineOptions options_;
  std::vector<Parameter> parameters_;
  std::unique_ptr<optim::Optimizer> rule_;
  std::unique_ptr<sync::Strategy> strategy_;
  const int stage_;
  Buckets buckets_;
  std::vector<std::size_t> bucket_of_, place_in_;  // by parameter: its bucket, its place among the members
  std::unique_ptr<sync::BufferPool> pool_;         // from stage 2 on
  std::unique_ptr<ParameterGatherer> gatherer_;    // stage 3
  std::unique_ptr<nn::Unsharder> unsharder_;       // stage 3; after gatherer_, its loader
  ArrivalCounter arrivals_;
  Lanes lanes_;
  bool syncing_ = false, ordered_ = false, open_ = false;  // open: a backward may still add to the buckets of begin()
  optim::StepInfo step_;
  StepState step_state_ = StepState::decided;
  Decision decision_;
  std::size_t updated_ = 0;  // buckets of the step that was decided
  std::function<void()> on_first_, before_update_;
};

}  // namespace cohort::engine
