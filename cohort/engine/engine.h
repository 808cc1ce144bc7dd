// The Engine takes gradients to parameters: it lays them out in buckets, carries the buckets over the ranks, holds the step's vote,
// updates.
//   Engine engine(comm, nn::parameters(model), {.strategy = "all_reduce(op=sum)"}, optim::make("sgd(lr=0.1)"));
//   engine.begin(info);            // gradients are in place; `sync` false: accumulate only, nothing is communicated
//   loss.backward();
//   Verdict v = engine.finish();   // agree, vote, update: the same answer on every rank
// A step is whole or not at all: all buckets agree, one vote commits, then parameters change. A gradient that is not finite on any rank
// calls the step off on all of them. early_update fuses the two sweeps for speed, gives these promises up, and clipping with them. A
// parameter that got no gradient on any rank is not updated (as libtorch skips an undefined gradient); one that got it on some ranks counts
// as zero on the others (early_update cannot know: there a missing gradient is a zero). Frozen parameters (requires_grad false) take no
// part. Tied ones count once.
// With strategy zero (sync/zero.h) a rank holds what its stage says; stages change no bit of the result, except that with accumulation
// stages 2 and 3 add up agreed gradients of the backwards where 0 and 1 agree on the sum: they communicate in every backward, so all ranks
// call begin() equally often. In stage 3 parameters come and go with the model's blocks: model.around(engine.around()). From stage 2
// on gradients do not stay in param.grad: they move into the bucket as they arrive.
// Owner: Trainer, DataParallel or Sharded. Threads: one; backward's hooks only count and hand over (without lanes, from stage 2 on, they
// carry the bucket). Failure: the first one, from finish() or backward, naming the bucket; the engine is useless afterwards.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/engine/lane.h"
#include "cohort/engine/options.h"
#include "cohort/engine/plan.h"
#include "cohort/nn/blocks.h"
#include "cohort/optim/groups.h"

namespace cohort::nn {
class Residency;
}

namespace cohort::engine {

class Gathering;

struct Parameter {
  std::string name;
  at::Tensor tensor;  // a leaf that requires grad, float or double, on the CPU (on any device with zero(offload=host))
  optim::Group group{};
  int unit = -1;  // stage 3: parameters of one unit come and go together (nn/residency.h); -1: it stays, as in stage 2
};

// Parameters that the same blocks read become a unit.
void share_out(const nn::Model& model, std::vector<Parameter>& parameters);

struct Verdict {
  bool committed = true;      // false: a gradient was not finite, and nothing was changed
  double squared_before = 0;  // mean over ranks of the squared norm of their own gradients; only with options.norms
  double squared_after = 0;   // of the agreed gradient, before StepInfo::grad_scale and clipping; with early_update only with options.norms
  double clip = 1;            // what gradients were multiplied with to clip them, beside grad_scale
  std::vector<double> sums;   // what the caller gave to finish(), summed over the ranks
  Seconds3 seconds;
};

// What a step's vote said: all that an update needs to know beside its gradients.
struct Decision {
  bool committed = true;
  double clip = 1;
  std::vector<bool> missing;  // by parameter: no rank had a gradient for it; empty: none
};

// Where a step stands: nothing has changed; likewise, and gradients are agreed upon, but how the vote ended was not heard; decided.
enum class Standing { open, undecided, decided };

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
  // Called from finish() when all that the update needs is held here (gradients and decision()) and nothing has changed: a further vote, of
  // an elastic job. When it throws, finish() does, with the step undecided: end_alone(decision()) may still end it.
  void on_agreed(std::function<void()> call) { on_agreed_ = std::move(call); }

  const std::vector<std::unique_ptr<sync::Bucket>>& buckets() const { return buckets_; }
  const LaneChoice& lanes() const { return lanes_choice_; }
  std::size_t bytes_in_flight() const;                     // that gradients on their way and gathered parameters take, at most so far
  void set_rate(double lr) { step_.lr = lr; }              // of the step under way; with early_update before its first gradient
  bool averages() const { return strategy_->averages(); }  // what a loss must be divided by depends on it
  const optim::Optimizer* rule() const { return rule_.get(); }
  void zero_gradients();
  // Optimizer state by parameter, in the order given. The tensors are views, good until the next finish(). Kind::usage when it is sharded.
  void each_state(const std::function<void(const std::string& parameter, const std::string& state, const at::Tensor& values)>& visit) const;

  // --- stage 3: parameters are there while a block runs, or while somebody holds them
  nn::Residency& residency() const;                     // Kind::usage in other stages
  nn::Around around(nn::Around inner = nullptr) const;  // for Model::around(); inner: what runs a block meanwhile
  // Collective: parameters are whole again, for good; the last thing an engine does. In other stages they always are.
  void make_whole();

  // Elements [first, first + count) of tensors of these sizes, as flat views that may be written, good until the next begin(). state "":
  // the parameter itself.
  using VisitShard = std::function<void(const std::string& parameter, const std::string& state, at::IntArrayRef sizes, std::int64_t first,
                                        std::int64_t count, const at::Tensor& flat)>;

  // --- buddy=true: a lost rank loses nothing (sync/bucket_buddy.cc says why)
  bool has_buddy() const { return sharding().buddy && comm_.size() > 1; }
  Standing standing() const { return standing_; }
  const Decision& decision() const { return decision_; }  // of the last step that was decided
  // Not a collective, after finish() failed: ends the step by what its vote said, here or on another survivor, without the others' help.
  // Without a buddy too: in stage 0 every rank has everything; else it is worth something only where all ranks end their own pieces.
  // Own and kept pieces are up to date then; up to stage 2 other elements of the parameters need not be.
  void end_alone(const Decision& decision);
  // As each_shard(), of what this rank keeps of the one before it.
  void each_kept(const VisitShard& visit) const;
  // The rank after `lost` hands back what it kept of it. Collective, on engines of the same layout: those of the survivors,
  // moved to new ranks' communicator by each_shard(), and a fresh one in the place of the lost.
  void take_back(Rank lost);

  // --- for checkpoints
  std::vector<std::string> trained() const;  // names of parameters that have elements
  int stage() const { return stage_; }
  bool shards_state() const { return stage() >= 1; }
  bool shards_parameters() const { return stage() >= 3; }
  // What this rank is to save. Over all ranks every element comes once; in stage 0 rank 0 has all. Not a collective.
  void each_shard(const VisitShard& visit) const;
  void adopted();  // collective: what was written through each_shard() reaches every rank that holds a copy of it

 private:
  struct Hook;
  void make_buckets(const std::vector<std::size_t>& order);
  void index_buckets();
  void open_lanes(LaneChoice mine);
  void open_gathering();
  sync::Sharding sharding() const { return strategy_->sharding(comm_.rank(), comm_.size()); }
  Crew crew() const {
    return {.strategy = *strategy_,
            .rule = rule_.get(),
            .early_update = options_.early_update,
            .measure_before = options_.norms,
            .all_own_all = stage() == 0};
  }
  bool carries_in_hooks() const { return lanes_.empty() && stage() >= 2; }
  void arrived(std::size_t parameter);
  void make_room(const sync::Bucket& bucket);
  void carry_ready(std::size_t up_to);
  void reorder();
  void reorder_buckets();
  std::vector<Report> carry_all();
  Verdict vote(std::span<const double> sums, const std::vector<Report>& reports);
  std::vector<bool> find_missing(double anywhere);
  void settle_all();
  Crew settlers() const;  // of the sweep after the vote
  optim::StepInfo decided_step() const;
  void visit_pieces(const VisitShard& visit, bool kept) const;

  collective::Communicator& comm_;
  const EngineOptions options_;
  std::vector<Parameter> parameters_;
  std::unique_ptr<optim::Optimizer> rule_;
  std::unique_ptr<sync::Strategy> strategy_;
  const int stage_;
  LaneChoice lanes_choice_;
  std::vector<std::unique_ptr<sync::Bucket>> buckets_;
  std::vector<std::size_t> bucket_of_, place_in_;  // by parameter: its bucket, its place among the members
  std::unique_ptr<sync::Pool> pool_;               // from stage 2 on
  std::unique_ptr<Gathering> gathering_;           // stage 3
  std::unique_ptr<nn::Residency> residency_;       // stage 3; after gathering_, its host
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::size_t> order_;      // of arrival, until buckets follow it
  std::vector<bool> arrived_;           // by parameter, in this backward
  std::vector<bool> touched_;           // by parameter, since the last finish(): in any of the backwards of an accumulated step
  std::size_t came_ = 0;                // how many have arrived
  std::vector<std::size_t> left_;       // by bucket: gradients still to come
  std::vector<std::size_t> completed_;  // buckets in the order their last gradient came, until buckets_ follow it
  std::vector<Report> carried_;         // in hooks, in this backward
  bool syncing_ = false, ordered_ = false, open_ = false;  // open: a backward may still add to the buckets of begin()
  optim::StepInfo step_;
  Standing standing_ = Standing::decided;
  Decision decision_;
  std::size_t updated_ = 0;  // buckets of the step that was decided
  std::function<void()> on_first_, on_agreed_;
};

}  // namespace cohort::engine
