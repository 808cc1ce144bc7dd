// A whole training run of a job whose workers come and go: what `cohort train --min-n` does on each of them.
//   ElasticTrainer(seat, config, {}).run();
// Between two changes of the roster it is an ordinary run: a communicator, a Learner on it, steps, evaluations, checkpoints. Each step is
// held back by one more vote (train/elastic_job.h) once its gradients are agreed upon. After a change
//   1 a step that the worker was prepared for is ended by itself, or dropped, as the coordinator says;
//   2 a Learner is made on the new communicator, of the same model and data; rank 0, which always holds the state, sends it to all:
//     parameters, buffers, optimizer state, loss scale, position; what is sharded (ZeRO) comes from all who have pieces of it (shards.h),
//     those of a lost rank from its buddy, those of one that left from whom it gave them to before;
//   3 what is left of the epoch of the data is shared out anew (data/rebalance.h). The batch of a rank stays, so the global batch follows
//     the number of ranks, and the learning rate follows it by the schedule's own rule (scale=none|linear|sqrt).
// Owner: the caller. Threads: one; leave() from any. Failure: Kind::usage for settings that an elastic job cannot have, before it joins.
#pragma once
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "cohort/data/rebalance.h"
#include "cohort/group/history.h"
#include "cohort/train/elastic_job.h"
#include "cohort/train/loop/chronicle.h"
#include "cohort/train/loop/keeper.h"
#include "cohort/train/loop/shards.h"

namespace cohort {

struct ElasticSettings {
  JobOptions job;
  int threads = 0;                                 // of torch; 0: as config says
  std::string history;                             // folder for what this worker did (group/history.h); empty: it is not written down
  std::function<void(Learner&, Rank)> after_step;  // as Trainer::after_step(); a rank is one of the epoch under way
};

class ElasticTrainer {
 public:
  // Gathers model and data, then joins the job.
  ElasticTrainer(group::SeatOptions seat, TrainConfig config, ElasticSettings settings, Whereabouts& where);
  ~ElasticTrainer();
  ElasticTrainer(const ElasticTrainer&) = delete;
  ElasticTrainer& operator=(const ElasticTrainer&) = delete;
  std::optional<RunSummary> run();  // none: this worker left before the end
  void leave(const std::string& why) { job_->seat().leave(why); }

 private:
  // What a worker carries from one epoch of the job to the next, beside the model.
  struct Carried {
    std::int64_t step = 0;
    data::Progress progress;
    std::int64_t evaluated = 0;  // epochs of the data that were evaluated
    optim::ScaleState scale;
    std::map<std::string, at::Tensor> optimizer;  // "parameter/state"; empty where it is sharded
    Shards shards;                                // where it is: what this rank has of it
    nn::NamedTensors alike;                       // likewise: what every rank has, buffers and frozen parameters
  };
  struct Session;  // one epoch of the job

  void train_in(const group::Seat::Begun& epoch);
  void settle(const group::Seat::Begun& epoch);
  std::vector<Rank> missing_in(const group::Roster& next) const;
  void end_step_alone(bool prepared_counts);
  void enter(const group::Seat::Begun& epoch);
  void refuse_other_settings();
  void compare_survivors(const group::Seat::Begun& epoch);
  void heal(const group::Seat::Begun& epoch);
  void renew_model();
  void leave_shards();
  void save_together();
  void open_books(const group::Seat::Begun& epoch, std::optional<std::int64_t> resumed);
  std::string go_on_text(const group::Seat::Begun& epoch, bool resumed) const;
  enum class Outcome { finished, changes };
  Outcome train();
  bool step();
  void end_epoch_of_data();
  void finish();
  void save_alone(bool prepared_counts);
  Carried carry() const;
  void adopt(const Carried& carried);
  void keep_buffers();
  void put_buffers_back();
  TrainConfig resuming() const;

  void write_down(group::HistoryLine::Event event, std::int64_t step);
  std::string hash() const;  // of the parameters; empty where no rank has all of them
  void plan_line();
  void commit_line(bool whole = true);  // whole: every parameter is as fresh as the step

  TrainConfig config_;
  const std::string config_text_;
  const ElasticSettings settings_;
  const bool sharded_;  // no rank has all of the state
  Whereabouts& where_;
  Materials materials_;
  std::unique_ptr<ElasticJob> job_;
  Carried carried_;
  checkpoint::Fence fence_;           // of the epoch that was entered last
  std::unique_ptr<Session> session_;  // stays after its epoch is over, until the next one says what becomes of the step under way
  std::vector<at::Tensor> buffers_;   // before the step under way: statistics move in forward
  bool change_ = false;               // the last vote carried a wish
  bool trained_ = false;              // the model is no longer as it was made
  bool prepared_ = false;             // all that the step under way needs is held
  bool entered_ = false;              // the model has been on a communicator
  bool diverged_ = false;             // survivors of a change had different parameters
  bool on_disk_ = false;              // all leave, and have saved together what they had
  bool lost_ = false;                 // and they could not
  Shards received_;                   // of those who leave, in the epoch that ends
  Origin origin_;                     // of a sharded state that was laid out anew
  Evaluation test_;
  std::optional<RunSummary> summary_;
  std::ofstream history_;
  group::HistoryLine next_line_;
};

}  // namespace cohort
