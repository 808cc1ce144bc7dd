// A whole training run of a job whose workers come and go: what `cohort train --min-n` does on each of them.
//   ElasticTrainer(elastic_worker_options, config, {}, status).run();
// Between two changes of the roster it is an ordinary run: a communicator, a TrainLoop on it, steps, evaluations, checkpoints. Each step is
// committed by one more vote (job/elastic_job.h) once its gradients are reduced. After a change
//   1 a step that the worker is prepared for is finished by each worker alone, or dropped, as the coordinator says;
//   2 a TrainLoop is made on the new communicator, of the same model and data; rank 0, which always holds the state, sends it to all:
//     parameters, buffers, optimizer state, loss scale, position; what is sharded (ZeRO) comes from all that have pieces of it (shards.h),
//     those of a lost rank from its buddy, those of one that left from the rank it transferred them to before;
//     Where replicas drift all begin with the mean of the survivors' models and states (Engine::merge_drifted_state): a lost rank costs its
//     own steps since the last round. Every step is committed there, too, so that survivors stand at the same one;
//   3 what is left of the epoch of the data is rebalanced (data/rebalance.h). The batch of a rank stays, so the global batch follows the
//     number of ranks, and the learning rate follows it by the schedule's own rule (scale=none|linear|sqrt).
// Owner: the caller. Threads: one; leave() from any. Failure: Kind::usage for settings that an elastic job cannot have, before it joins.
#pragma once
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "cohort/data/rebalance.h"
#include "cohort/elastic/history.h"
#include "cohort/engine/residuals.h"
#include "cohort/job/elastic_job.h"
#include "cohort/train/loop/checkpoint_manager.h"
#include "cohort/train/loop/run_logger.h"
#include "cohort/train/loop/shards.h"

namespace cohort::train {

struct ElasticSettings {
  JobOptions job;
  int threads = 0;                                   // of torch; 0: as config says
  std::string history;                               // folder for what this worker did (elastic/history.h); empty: it is not written
  std::function<void(TrainLoop&, Rank)> after_step;  // as Trainer::after_step(); a rank is one of the epoch under way
};

class ElasticTrainer {
 public:
  // Loads model and data, then joins the job.
  ElasticTrainer(elastic::ElasticWorkerOptions elastic_worker, TrainConfig config, ElasticSettings settings, RankStatus& status);
  // With a model, data and a loss of the program's own; own.make_model makes the model again where this trainer has to.
  ElasticTrainer(elastic::ElasticWorkerOptions elastic_worker, TrainConfig config, ElasticSettings settings, RankStatus& status,
                 ModelAndData own);
  ~ElasticTrainer();
  ElasticTrainer(const ElasticTrainer&) = delete;
  ElasticTrainer& operator=(const ElasticTrainer&) = delete;
  std::optional<RunSummary> run();  // none: this worker left before the end
  void leave(const std::string& why) { job_->elastic_worker().leave(why); }

 private:
  ElasticTrainer(elastic::ElasticWorkerOptions elastic_worker, TrainConfig config, ElasticSettings settings, RankStatus& status,
                 std::optional<ModelAndData> own);
  // What a worker carries from one epoch of the job to the next, beside the model.
  struct ElasticState {
    std::int64_t step = 0;
    data::Progress progress;
    std::int64_t evaluated = 0;        // epochs of the data that were evaluated
    std::int64_t optimizer_start = 0;  // as TrainLoop's
    std::int64_t rounds = 0;           // of synchronisation, where replicas drift
    optim::ScaleState scale;
    std::map<std::string, at::Tensor> whole;  // the engine's state, what is not cut over the ranks, by its key
    engine::Residuals residuals;
    Shards shards;            // what is: this rank's part
    nn::NamedTensors common;  // likewise: what every rank has, buffers and frozen parameters
  };
  struct Session;  // one epoch of the job

  void train_in(const elastic::ElasticWorker::Begun& epoch);
  void end_previous_epoch(const elastic::ElasticWorker::Begun& epoch);
  std::vector<Rank> missing_in(const group::Roster& next) const;
  void finish_pending_step(bool prepared_counts);
  void enter(const elastic::ElasticWorker::Begun& epoch);
  void open_loop(const elastic::ElasticWorker::Begun& epoch);
  void refuse_other_settings_and_data();
  void ends_job_if_refused(const std::function<void()>& take);
  std::optional<std::int64_t> restore_checkpoint();
  void compare_survivors(const elastic::ElasticWorker::Begun& epoch);
  void receive_state(const elastic::ElasticWorker::Begun& epoch);
  ModelAndData open_model_and_data(std::optional<ModelAndData> own, const elastic::ElasticWorkerOptions& elastic_worker);
  void make_model_again();
  void rebuild_model();
  void transfer_before_leaving();
  void save_before_all_leave();
  void open_logs(const elastic::ElasticWorker::Begun& epoch, std::optional<std::int64_t> resumed);
  std::string resume_text(const elastic::ElasticWorker::Begun& epoch, bool resumed) const;
  enum class Outcome { finished, changes };
  Outcome train();
  bool step();
  void end_job_if_taken_over();
  void end_epoch_of_data();
  void finish();
  void save_as_last_worker(bool prepared_counts);
  ElasticState capture_state() const;
  void restore_state(const ElasticState& saved);
  void snapshot_buffers();
  void restore_buffers();
  TrainConfig resuming_config() const;

  void log_history(elastic::HistoryLine::Event event, std::int64_t step);
  std::string hash() const;  // of the parameters; empty where no rank has all of them
  void prepare_history_line();
  void commit_history_line(bool whole = true);  // whole: every parameter is as fresh as the step

  TrainConfig config_;
  const std::string config_text_;
  const ElasticSettings settings_;
  const bool sharded_;  // no rank has all of the state
  const bool drifts_;   // every rank has a model of its own between two sync rounds
  RankStatus& status_;
  ModelAndData model_and_data_;
  std::unique_ptr<job::ElasticJob> job_;
  ElasticState elastic_state_;
  std::string launched_job_;                      // the job's name and launch: whose checkpoints they are
  checkpoint::Fence fence_;                       // of the epoch that was entered last
  std::unique_ptr<Session> session_;              // stays after its epoch, until the next one says what becomes of the step under way
  std::vector<at::Tensor> buffers_;               // before the step under way: statistics move in forward
  bool change_ = false;                           // the last vote asked for a change of the roster
  bool trained_ = false;                          // the model is no longer as it was made
  bool prepared_ = false;                         // this rank is prepared to commit the step under way
  bool entered_ = false;                          // the model has been on a communicator
  bool diverged_ = false;                         // survivors of a change had different parameters
  bool unusable_ = false;                         // the checkpoints of the run: no worker could resume from them, or save
  bool on_disk_ = false;                          // all leave, and have saved a checkpoint together
  bool lost_ = false;                             // and they could not
  std::string why_lost_;                          // .. write it; empty: it was not whole
  Shards received_;                               // from those that leave, in the epoch that ends
  std::optional<engine::Residuals> handed_over_;  // likewise, and this rank's own
  ShardOrigins origins_;                          // of a sharded state that was redistributed
  Evaluation test_;
  std::optional<RunSummary> summary_;
  std::ofstream history_;
  elastic::HistoryLine next_line_;
};

}  // namespace cohort::train
