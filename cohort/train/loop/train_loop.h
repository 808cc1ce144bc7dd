// The TrainLoop computes in a training run: model, data and engine, one step or one evaluation at a time.
// Loss and gradient are sums over samples divided by the samples of all ranks, so that n ranks equal one rank with n times the batch, also
// for a short last batch. With config.mesh n are its dp places: the tp ranks of one take the same samples, and one of them counts.
// Dropout and other randomness follow (seed, step, dp place) alone: nothing random needs saving.
// Buffers (running statistics) are each rank's own while it trains; average_buffers(), before evaluating and saving, gives all ranks their
// mean, once between two steps. With config.precision forward and backward run under autocast; evaluation is in fp32, as inference is.
// A step that its vote calls off counts as a step of the run and not as an update of the rule (Adam's bias correction). Owner: Trainer.
// Threads: one. Failure: as the modules below.
#pragma once
#include <atomic>
#include <memory>
#include <optional>

#include "cohort/base/core_wait.h"
#include "cohort/data/loader.h"
#include "cohort/engine/engine.h"
#include "cohort/group/device_mesh.h"
#include "cohort/nn/batch.h"
#include "cohort/nn/blocks.h"
#include "cohort/nn/parallel/shard_specs.h"
#include "cohort/observe/phases.h"
#include "cohort/optim/loss_scale.h"
#include "cohort/optim/schedule.h"
#include "cohort/train/loop/model_and_data.h"
#include "cohort/train/loop/non_finite.h"
#include "cohort/train/loop/rank_status.h"
#include "cohort/train/loop/recompute_plan.h"
#include "cohort/train/loop/step_profiler.h"

namespace cohort::train {

struct StepResult {
  double loss = 0;    // mean over the samples of all ranks, and of all steps since the last that was known
  bool known = true;  // of all ranks; false: replicas drift, and it is this rank's own
  double samples = 0;
  double lr = 0;
  double scale = 1;          // of the loss, in this step
  std::int64_t skipped = 0;  // steps called off so far, this one included
  engine::Verdict verdict;
  observe::PhaseSeconds phases;  // of this rank; what lanes hide behind backward does not count
  // By rank: seconds it computed for a sample, without waiting for anybody; 0: not known. They come with the step's vote.
  std::uint64_t received_bytes = 0;  // by this rank in this step, in collectives and messages
  std::vector<double> paces;
  std::optional<sync::Staleness> staleness;  // of what this rank read from servers; none: there are none
  bool leaves = false;                       // some rank was told to leave (TrainLoop::leave()); likewise
};

struct MetricValue {
  std::string name;
  double value = 0;
  bool percent = false;      // 0.912 is shown as 91.20 %
  std::string text() const;  // "91.20 %", "0.1234"
};

struct Evaluation {
  double loss = 0;                   // a mean over the whole set, exact, as the metrics
  std::vector<MetricValue> metrics;  // in the order of the objective
  std::int64_t samples = 0;          // what the loss counted
  // Where replicas drift: how far ranks are from the model that was evaluated, as a share of its norm (root of the mean square). With a
  // codec that keeps what it does not send: the norm of that (likewise). None: there is no such thing.
  std::optional<double> disagreement{}, residual{};
  double metric(std::string_view name) const;  // Kind::usage naming those that there are
};

class TrainLoop {
 public:
  TrainLoop(collective::Communicator& comm, const TrainConfig& config, int cores, int ranks_here, RankStatus& status);
  // With a model and data that were loaded before. An elastic job passes them from one epoch's loop to the next (not with sync_batch_norm,
  // which ties the model to a communicator); parameters and buffers are rank 0's then.
  TrainLoop(collective::Communicator& comm, const TrainConfig& config, int cores, int ranks_here, RankStatus& status,
            ModelAndData model_and_data);

  data::Position position() const { return position_; }  // of the next step
  std::int64_t samples_taken() const;                    // of the epoch of position(), by all ranks
  std::int64_t step() const { return step_; }            // updates made
  std::int64_t total_steps() const { return total_; }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t steps_of_epoch(std::int64_t epoch) const;  // of the epoch that another number of ranks began: what was left
  bool done() const { return step_ >= total_; }
  double last_loss() const { return last_loss_; }  // of the last step here: the mean over the samples of all ranks; 0 before the first
  // Before the first step: `step` updates were made, and `samples` of the epoch are gone. When they are no whole number of this run's steps
  // (another number of ranks, another batch) the rest of the epoch is rebalanced.
  void start_at(std::int64_t epoch, std::int64_t samples, std::int64_t step);
  // So many updates were made before the optimizer's state began: it was dropped there, and its own count of updates with it.
  void set_optimizer_start(std::int64_t updates) { optimizer_start_ = updates; }
  std::int64_t optimizer_start() const { return optimizer_start_; }
  // Steps so far that are no updates to the rule. Where a rank leaves out its own they all are: ranks stay at the same update.
  std::int64_t left_out() const { return engine_->steps_alone() ? 0 : scale_.skipped(); }

  StepResult train_step();
  void leave() noexcept { leaves_ = true; }  // from any thread: all ranks learn of it by the vote of a step, this one or the next
  bool step_pending() const { return pending_position_.has_value(); }  // a step came to its vote and is not counted yet: something failed
  data::Share share() const { return share_of(config_, train_->size(), comm_.size(), comm_.rank().value); }
  // After a rank was lost: the last step that was decided here, and whether the update of it is still to be counted.
  std::int64_t decided() const { return step_ + (decided_here() ? 1 : 0); }
  // Not a collective: finishes the step under way by the result of its vote (engine.h), without the other ranks.
  void finish_step_alone(const engine::Decision& decision);
  std::uint64_t received_bytes() const;  // by this rank since the loop was made, in collectives and messages
  double all_reduce_bytes() const;       // that it would receive in a step of sync=all_reduce, in fp32
  Evaluation evaluate();                 // config.data.test, sharded over the ranks
  // Collective: checks that what is replicated on all ranks, parameters and averaged buffers, has the same bits (replicas.h). Due every
  // config.check_replicas steps. In stage 3 parameters are sharded, not replicated. Kind::corrupt on all ranks; diverged() then.
  void compare_replicas();
  bool has_replicas() const { return comm_.size() > 1 && !replicas().empty(); }
  const NonFiniteSteps& non_finite() const { return non_finite_; }
  // The job cannot go on: Kind::corrupt, the same on all ranks; diverged() then. newest: the step of the newest checkpoint; -1: none.
  [[noreturn]] void stop_for_non_finite_steps(std::int64_t newest);
  bool diverged() const { return diverged_; }  // replicas differ, or steps are not finite any more
  void compare_replicas_if_due() {
    if (config_.check_replicas > 0 && step_ % config_.check_replicas == 0) compare_replicas();
  }
  at::Tensor first_inputs(int count) const;  // the first samples of the training set, as evaluation would see them
  void average_buffers();

  void profile_with(StepProfiler* profiler) { profiler_ = profiler; }  // borrowed for the run; none: nothing is measured

  nn::Model& model() { return model_; }
  const std::string& model_spec() const { return model_spec_; }  // with the parameters that the data set decided ..
  const std::string& from_data() const { return from_data_; }    // .. which are these; empty: none
  const std::string& pretrained() const { return pretrained_; }  // what was loaded from a file of first values; empty: none
  const nn::Objective& objective() const { return objective_; }
  const data::Form& form() const { return train_->form(); }
  const data::Fingerprint& data_fingerprint() const { return train_->fingerprint(); }  // of the training set
  const data::Transforms& transforms() const { return transforms_; }
  engine::Engine& engine() { return *engine_; }
  optim::LossScale& scale() { return scale_; }
  const optim::LossScale& scale() const { return scale_; }
  const std::string& tuning() const { return tuning_; }                // what autotune chose and why; empty: it was not asked for
  const std::string& recomputing() const { return recomputing_.why; }  // which blocks; empty: it was not asked for
  const std::string& groups() const { return groups_; }                // "decayed 1.2 M in 5 tensors, .."
  double base_lr() const { return base_lr_; }
  std::int64_t global_batch() const { return static_cast<std::int64_t>(config_.data.batch) * config_.data.accumulate * mesh_.size("dp"); }
  const group::DeviceMesh& mesh() const { return mesh_; }
  std::int64_t parameter_count() const { return parameter_count_; }  // of the whole model
  const nn::ShardSpecs& shards() const { return shards_; }           // parameters of which each tp rank has a part

 private:
  std::vector<engine::Parameter> parameters(const optim::Optimizer& rule);
  void split_model(std::vector<engine::Parameter>& parameters);
  bool counts() const;  // of the ranks that have the same samples, one counts what they find
  void open_loader();
  at::Tensor forward(const at::Tensor& inputs);  // logits in fp32, computed in config.precision
  nn::NamedTensors replicas() const;
  std::optional<std::string> difference_of_replicas() const;
  nn::Tensors on_device(const data::Batch& batch) const;
  double compute(const data::Batch& batch);  // forward and backward of all its micro-batches; returns the sum of losses
  bool decided_here() const { return pending_position_ && engine_->step_state() == engine::StepState::decided; }
  void count_step(bool committed);
  static void add_own_loss(std::vector<double>& sums, double loss, const data::Batch& batch);
  void read_sums(StepResult& result, const data::Batch& batch);
  double stolen_seconds() const;

  collective::Communicator& comm_;
  const TrainConfig config_;
  RankStatus& status_;
  const group::DeviceMesh mesh_;
  const std::optional<CoreWait> cores_;                  // where ranks share cores: the time without a core is not a rank's own
  std::unique_ptr<collective::Communicator> norm_comm_;  // of SyncBatchNorm, if it is on
  std::unique_ptr<collective::Communicator> tp_comm_;    // of layers that ranks share out, if there are any
  nn::ShardSpecs shards_;                                // their parameters
  nn::Model model_;
  const std::string model_spec_, from_data_, pretrained_;
  c10::Device device_{c10::kCPU};  // of the model
  std::string groups_, tuning_;
  double base_lr_ = 0;
  std::unique_ptr<engine::Engine> engine_;
  const optim::Schedule schedule_;
  optim::LossScale scale_;  // the step's vote is its overflow: the same on every rank
  NonFiniteSteps non_finite_;
  std::shared_ptr<const data::Dataset> train_, test_;
  data::Transforms transforms_;
  const nn::Objective objective_;
  const double counts_each_;  // what the loss counts for a sample
  const RecomputePlan recomputing_;
  std::unique_ptr<data::Loader> loader_;
  std::int64_t parameter_count_ = 0, steps_per_epoch_ = 0, total_ = 0, step_ = 0, optimizer_start_ = 0;
  data::Position position_;
  std::optional<data::Position> pending_position_;  // the step whose gradients are computed, until it is counted
  std::int64_t first_epoch_ = 0, first_ = 0;        // samples of that epoch that were gone before its step 0
  StepProfiler* profiler_ = nullptr;
  std::atomic<bool> leaves_{false};
  bool warm_ = false;          // a step was made
  bool buffers_equal_ = true;  // on all ranks
  double last_loss_ = 0;
  std::int64_t compared_ = -1;     // the step after which replicas were compared last ..
  bool compared_buffers_ = false;  // .. with the buffers
  bool diverged_ = false;          // they were not the same, or training came to no end
};

}  // namespace cohort::train
