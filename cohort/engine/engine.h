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
// What a rank holds follows the strategy's placement (sync/placement.h), which changes no bit of the result, except that with accumulation
// gradients that are whole only while used (ZeRO 2 and 3) are reduced in every backward and added up then, where else their sum is reduced:
// all ranks call begin() equally often then. Such gradients do not stay in param.grad: they move into the bucket as they arrive. Parameters
// that are whole only while used (ZeRO 3) are gathered and freed with the model's blocks: model.wrap_blocks(engine.block_wrapper()).
// With a strategy whose replicas drift (sync/averaging.h, dpsgd) a rank's step is its own: a gradient that is not finite skips it on that
// rank alone, and sums and losses of all ranks are known at sync rounds only (Verdict::sums_of). Evaluate and save under a Consensus.
// With servers (sync/strategies/ps.cc) a rank's step is its own, too; the update is theirs, and parameters are what it has pulled last. A
// Consensus brings all ranks to what the servers have.
// On a mesh of ranks (options.mesh) parameters may be boxes of larger ones: a bucket is reduced along the axes that its parameters say, the
// vote is of all ranks, and a norm counts every element once, whoever holds it (mesh_spans.h).
// Where parameters are on a GPU buckets, gradients, the rule's state and the update are, too; the host waits once a step, for the vote.
// Owner: Trainer, DataParallel or Sharded. Threads: one; backward's hooks only count and mark buckets ready (without lanes, from stage 2
// on, they reduce the bucket). Failure: the first one, from finish() or backward, naming the bucket; the engine is useless afterwards.
// The step is in step.cc, the vote in decide.cc, planning of buckets in engine_buckets.cc, checkpoints and buddies in engine_state.cc.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/base/shard_spec.h"
#include "cohort/base/state.h"
#include "cohort/engine/bucket_plan.h"
#include "cohort/engine/gradient_arrivals.h"
#include "cohort/engine/host_mirror.h"
#include "cohort/engine/lanes.h"
#include "cohort/engine/mesh_spans.h"
#include "cohort/engine/options.h"
#include "cohort/nn/blocks.h"
#include "cohort/optim/groups.h"

namespace cohort::nn {
class Unsharder;
}

namespace cohort::engine {

class EngineSide;
class ParameterGatherer;
class Publisher;
class TensorSums;

struct Parameter {
  std::string name;
  at::Tensor tensor;  // a leaf that requires grad, float or double; all on one device
  optim::Group group{};
  int unit = -1;  // ZeRO 3: parameters of one unit are gathered and freed together (nn/unshard/unsharder.h); -1: never freed, as in ZeRO 2
  // --- on a mesh (options.mesh)
  ShardSpec shard{};    // of which larger tensor this is a box, and under which name files know it; without a name: it is whole
  MeshAxes cut{};       // along these axes ranks hold other boxes of it
  MeshAxes over{"dp"};  // its gradient is summed over these; a mean divides by the ranks of dp, whatever these are
};

// Parameters that the same blocks read become a unit.
void assign_units(const nn::Model& model, std::vector<Parameter>& parameters);

struct Verdict {
  bool committed = true;      // false: a gradient was not finite, and nothing was changed (where replicas drift: on this rank)
  double squared_before = 0;  // mean over ranks of the squared norm of their own gradients; only with options.norms
  double squared_after = 0;  // of the reduced gradient, before StepInfo::grad_scale and clipping; with early_update only with options.norms
  double clip = 1;           // what gradients were multiplied with to clip them, beside grad_scale
  std::vector<double> sums;  // what the caller gave to finish(), summed over the ranks and ..
  std::int64_t sums_of = 1;  // .. so many steps; 0: this rank's own, as those of the others are not known before the next sync round
  bool stuck = false;        // some rank has called off every step of these
  StepSeconds seconds;
};

// open: nothing has changed. undecided: likewise, gradients are reduced, but the result of the vote is not known here. decided.
enum class StepState { open, undecided, decided };

// How far this rank is from the one model, and how large what codecs keep of it is: of this rank alone, to be summed over the ranks.
struct Disagreement {
  double squared_distance = 0;  // of its own parameters from those of the Consensus that lives
  double squared_norm = 0;      // of the parameters of that one
  double squared_residual = 0;  // of what it has not sent of its gradients
  bool known = true;            // false: some of it is in memory of a GPU, which is not looked at
};

// From here to its end the parameters are those of the one model that the job stands for, on every rank: where replicas drift the mean of
// them, or what the strategy says. Collective to make, between two steps; nothing is copied where replicas are identical.
class Engine;
class Consensus {
 public:
  explicit Consensus(Engine& engine);
  ~Consensus();
  Consensus(const Consensus&) = delete;
  Consensus& operator=(const Consensus&) = delete;

 private:
  Engine& engine_;
};

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
  // samples: of all ranks, that the first of the sums is the loss of; 0: it is something else. For rules that look at the loss.
  Verdict finish(std::span<const double> sums = {}, double samples = 0);
  // After backward: until its gradients are reduced, on a GPU until that is enqueued; else finish() does it. So a caller that waits for the
  // GPU before finish(), as for its loss, waits for all of it once.
  void await_gradients();
  // Called from backward, at the first gradient of a step that synchronises.
  void on_first_gradient(std::function<void()> call) { on_first_ = std::move(call); }
  // Called from finish() when this rank has all that the update needs (gradients and decision()) and nothing has changed: a further vote,
  // of an elastic job. When it throws, finish() does, with the step undecided: finish_step_alone(decision()) may still end it.
  void before_update(std::function<void()> call) { before_update_ = std::move(call); }

  const Buckets& buckets() const { return buckets_; }
  const LaneChoice& lanes() const { return lanes_.choice(); }
  std::size_t bytes_in_flight() const;  // the most that gradients in flight and gathered parameters took so far
  // Of the step under way; with a codec that has feedback before its first gradient, as what is kept is weighed with the rate; not with
  // early_update, where lanes have begin()'s.
  void set_rate(double lr);
  bool averages() const { return strategy_->averages(); }  // what a loss must be divided by depends on it
  const sync::Strategy& strategy() const { return *strategy_; }
  bool drifts() const { return strategy_->semantics().drifts() && comm_.size() > 1; }  // replicas differ between sync rounds
  bool steps_alone() const { return strategy_->semantics().commit_scope == sync::Scope::self && comm_.size() > 1; }
  bool identical() const { return strategy_->semantics().identical == sync::Scope::world || comm_.size() == 1; }  // after every step
  std::optional<sync::Staleness> staleness() { return strategy_->staleness(); }
  const optim::Optimizer* rule() const { return rule_.get(); }
  void zero_gradients();

  // --- state (base/state.h): parameters (group "model"), the rule's state ("optimizer"), residuals of a codec ("residual"), what a
  // strategy keeps ("strategy"). What this rank holds; over all ranks every element of what is cut comes once. Not a collective. Values may
  // be written until the next begin(), and publish_loaded_state() follows. Under a Consensus too the parameters are this rank's own.
  void visit(StateVisitor& visitor) const;
  void visit(const std::function<void(const StateItem&)>& call) const;
  void visit_buddy(const std::function<void(const StateItem&)>& call) const;  // this rank's copy of what the rank before it has
  // Collective: what was written reaches every rank that holds a copy of it; boxes of a mesh are written by all that hold them. Where
  // replicas drift every rank's own stays as written.
  void publish_loaded_state();
  // Collective, before it: where replicas drift all begin with the mean of those that `counts`: under Guarantee::sync_round of those that
  // have ended the most rounds, as a round counts on all when it has ended on one. A model that is not finite does not count.
  void merge_drifted_state(bool counts);
  void begin_strategy_anew();   // parameters came from elsewhere, without what the strategy keeps beside them: it begins with them
  void begin_own_slots_anew();  // what it keeps of this rank alone did not come along
  std::int64_t rounds() const { return rounds_; }  // that have ended here
  void set_rounds(std::int64_t rounds) { rounds_ = rounds; }
  // Collective, at the end of training: every rank has the one model that the job stands for, for good.
  void adopt_consensus();
  void start_at(std::int64_t steps) { steps_ = steps; }  // before the first step: so many were finished before it, called off ones too
  Disagreement disagreement() const;                     // not a collective; of replicas only under a Consensus
  std::vector<std::string> trained() const;              // names of parameters that have elements
  bool shards_state() const { return placement_.sharded(); }
  bool has_own_state() const { return drifts() || keeps_residuals(); }  // Share::each
  double residual_weight() const;                                       // of the residuals of a codec (codec/feedback.h)
  void set_residual_weight(double weight) const;
  bool shards_parameters() const { return unsharder_ != nullptr; }  // parameters are whole only while used, until make_whole()
  bool has_boxes() const;                                           // on a mesh: some parameters are boxes of larger ones

  // --- parameters that are whole only while a block runs, or while an Unsharder::Hold lives
  nn::Unsharder& unsharder() const;  // Kind::usage where they always are
  // --- blocks: parameters that come and go with them (ZeRO 3) or arrive while others run (options.publish), or a rule that looks at their
  // layers
  bool wraps_blocks() const;
  nn::BlockWrapper block_wrapper(nn::BlockWrapper inner = nullptr) const;  // for Model::wrap_blocks(); inner: what runs a block
  // Until updated parameters are there: before they are read outside of a block. visit() and a Consensus do it by themselves.
  void await_parameters() const;
  // Collective: parameters are whole again, for good; the last thing such an engine does: a step after it is Kind::usage. Elsewhere they
  // always are.
  void make_whole();

  // --- buddy=true: a lost rank loses nothing (sync/buddy.h says why)
  bool has_buddy() const { return placement_.has_buddy_copy(); }
  StepState step_state() const { return step_state_; }
  const Decision& decision() const { return decision_; }  // of the last step that was decided
  // Not a collective, after finish() failed: ends the step by the outcome of its vote, here or on another survivor, without the others.
  // Without a buddy too: where replicas are whole every rank has everything; else it is of use only where all ranks end their own pieces.
  // Own pieces and buddy copies are up to date then; other elements of the parameters need not be.
  void finish_step_alone(const Decision& decision);
  // The rank after `lost` sends its copy back. Collective, on engines of the same layout: those of the survivors, moved to the new
  // ranks' communicator by visit(), and a fresh one in the place of the lost.
  void restore_from_buddy(Rank lost);

 private:
  friend class Consensus;
  struct Hook;
  void make_buckets(const std::vector<std::size_t>& order);
  void index_buckets();
  void open_gatherer();
  void open_publisher(bool far);
  std::vector<const sync::Bucket*> buckets_of(const nn::Block& block) const;
  void publish(Bucket& bucket);
  Bucket& updated_bucket(std::size_t turn) const;
  void open_side();
  void open_strategy();
  StepContext context() const {
    return {.strategy = *strategy_,
            .rule = rule_.get(),
            .early_update = options_.early_update,
            .measure_before = options_.norms,
            .seed = options_.seed,
            .mean_of = spans_.mean_of(),
            .me = comm_.rank()};
  }
  ReductionPass pass() const { return {step_, syncing_, schedule_, steps_ + 1}; }
  sync::Wire wire(const Bucket& bucket) const {
    return {.comm = &comms_.of(bucket),
            .deadline = {},
            .step = coded_step(step_, options_.seed),
            .number = steps_,
            .mean_of = spans_.mean_of()};
  }
  bool taps() const { return rule_ && rule_->needs().taps; }
  bool pooled() const { return placement_.gathers_gradients(); }
  void on_gradient(std::size_t parameter);
  void refuse_after_make_whole() const;
  void refuse_options() const;
  void refuse_on_mesh() const;
  void refuse_on_gpu() const;
  Device device() const;                                              // of gradients and updates
  cuda::Stream gpu_stream() const { return torch_stream(device()); }  // of the calling thread
  TrainedTensor trained_tensor(std::size_t parameter) const;
  sync::Placement placement_of(int span) const;
  void reorder();
  void reorder_buckets();
  Verdict decide(std::span<const double> sums, const std::vector<BucketReport>& reports);
  Verdict vote(std::span<const double> sums, const std::vector<BucketReport>& reports, const TensorSums& tensor_sums,
               std::vector<double>& known);
  Verdict decide_alone(std::span<const double> sums, const std::vector<BucketReport>& reports, const TensorSums& tensor_sums,
                       std::vector<double>& known);
  void share_sums(Verdict& verdict, bool& whole);
  std::vector<bool> find_missing(double anywhere);
  void measure_rounds(const TensorSums& sums);
  void update_all();
  void update_by_servers();
  void quiesce();
  void settle_codecs();
  bool encodes(int ranks) const { return codec_ && (ranks > 1 || codec_->momentum()); }  // whose momentum is the codec's, has it alone, too
  bool keeps_residuals() const { return encodes(comm_.size()) && codec_->feedback(); }
  void close_round(Verdict& verdict);
  StepContext update_context() const;  // of the pass after the vote
  optim::StepInfo decided_step() const;
  void visit_parameter(const std::function<void(const StateItem&)>& call, std::size_t parameter) const;
  void visit_residuals(const std::function<void(const StateItem&)>& call, std::size_t parameter) const;
  void enter_consensus();
  void leave_consensus();
  void swap_drifted();
  bool has_finite_model() const;

  collective::Communicator& comm_;
  const EngineOptions options_;
  std::vector<Parameter> parameters_;
  std::unique_ptr<optim::Optimizer> rule_;
  std::unique_ptr<sync::Strategy> strategy_;
  MeshSpans spans_;
  std::vector<int> span_of_;                   // by parameter
  const SpanComms comms_;                      // of the thread that trains
  const sync::Placement placement_;            // of buckets, but for parameters in no block
  std::shared_ptr<const codec::Codec> codec_;  // none: gradients travel as they are
  Buckets buckets_;
  std::vector<std::size_t> bucket_of_, place_in_;                          // by parameter: its bucket, its place among the members
  std::unique_ptr<sync::BufferPool> pool_;                                 // where gradients are whole only while used
  std::unique_ptr<ParameterGatherer> gatherer_;                            // where parameters are
  std::unique_ptr<Publisher> publisher_;                                   // where updated parameters travel beside the next forward
  mutable bool gated_ = false;                                             // blocks wait for it: block_wrapper() was asked for
  std::unordered_map<const void*, const sync::Bucket*> bucket_by_tensor_;  // for them
  std::unique_ptr<EngineSide> side_;                                       // of rules that look at layers or ask other ranks
  std::unique_ptr<nn::Unsharder> unsharder_;                               // likewise; after gatherer_, its loader
  ArrivalCounter arrivals_;
  Lanes lanes_;
  bool syncing_ = false, ordered_ = false, open_ = false;  // open: a backward may still add to the buckets of begin()
  optim::StepInfo step_;
  sync::SyncSchedule schedule_;  // of step_
  std::int64_t steps_ = 0;       // that this engine or those before it finished, called off ones too: what schedules count
  StepState step_state_ = StepState::decided;
  Decision decision_;
  std::size_t updated_ = 0;                           // buckets of the step that was decided
  std::vector<double> own_sums_;                      // of the steps whose sums other ranks do not know yet
  std::int64_t own_steps_ = 0, own_called_off_ = 0;   // so many
  std::optional<std::vector<BucketReport>> carried_;  // what await_gradients() found
  std::int64_t rounds_ = 0;
  int consensus_depth_ = 0;
  std::vector<collective::Region> drifted_;  // this rank's own parameters, by bucket, while a Consensus lives
  std::function<void()> on_first_, before_update_;
  mutable HostMirror mirror_;  // where buckets lie on a GPU: what visit() shows of them, until they change
};

}  // namespace cohort::engine
