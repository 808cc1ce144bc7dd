// From the first epoch of the job to the last, and from its first step to the last in each: the loop. elastic_entry.cc begins an epoch,
// elastic_state.cc has what goes from one to the next, elastic_leave.cc what a leaving worker does, elastic_history.cc the history file.
#include "cohort/train/loop/elastic_trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "cohort/base/log.h"
#include "cohort/base/log_worker.h"
#include "cohort/job/run_on_all.h"
#include "cohort/train/loop/elastic_session.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train {

using elastic::ElasticWorker;
using elastic::HistoryLine;

ElasticTrainer::ElasticTrainer(elastic::ElasticWorkerOptions elastic_worker, TrainConfig config, ElasticSettings settings,
                               RankStatus& status)
    : ElasticTrainer(std::move(elastic_worker), std::move(config), std::move(settings), status, std::nullopt) {}

ElasticTrainer::ElasticTrainer(elastic::ElasticWorkerOptions elastic_worker, TrainConfig config, ElasticSettings settings,
                               RankStatus& status, ModelAndData own)
    : ElasticTrainer(std::move(elastic_worker), std::move(config), std::move(settings), status, std::optional(std::move(own))) {}

ElasticTrainer::ElasticTrainer(elastic::ElasticWorkerOptions elastic_worker, TrainConfig config, ElasticSettings settings,
                               RankStatus& status, std::optional<ModelAndData> own)
    : config_(own ? settings_for(std::move(config), *own) : std::move(config)),
      config_text_(bare_yaml(config_)),
      settings_(std::move(settings)),
      sharded_(shards_state(config_)),
      drifts_(drifts(config_)),
      status_(status),
      model_and_data_(open_model_and_data(std::move(own), elastic_worker)) {
  if (!settings_.history.empty()) history_.open(fmt::format("{}/{}.jsonl", settings_.history, getpid()), std::ios::app);
  model_and_data_.train->fingerprint();  // now: a set that cannot be read ends this worker before it is one of the job's
  if (model_and_data_.test) model_and_data_.test->fingerprint();
  launched_job_ = checkpoint::job_of_launch(elastic_worker.job, elastic_worker.launch);
  status_.set_phase("waiting for the job to begin");
  job_ = std::make_unique<job::ElasticJob>(std::move(elastic_worker), settings_.job);
}

ModelAndData ElasticTrainer::open_model_and_data(std::optional<ModelAndData> own, const elastic::ElasticWorkerOptions& elastic_worker) {
  if (elastic_worker.number >= 0) set_log_worker(elastic_worker.number, kNoRank);
  check(config_);
  check_elastic(config_);
  if (sharded_ && !elastic_worker.shards)
    throw_failure(Kind::usage,
                  "sync {} shards the state over the workers, and the coordinator of this job does not know that: start it with "
                  "`cohort train --min-n`, a program of your own with `cohort run --min-n` and --worker-state shard (buddy where "
                  "buddy=true)",
                  config_.sync);
  if (own && !own->make_model)
    throw_failure(Kind::usage, "an elastic job makes the model again when no worker has all of its state: say ModelAndData::make_model");
  status_.set_phase("opening model and data");
  if (config_.threads == 0) config_.threads = settings_.threads;
  if (config_.threads > 0) at::set_num_threads(config_.threads);
  if (!own) return load_model_and_data(config_);
  prepare(*own, config_);
  return *std::move(own);
}

ElasticTrainer::~ElasticTrainer() {
  job_->elastic_worker().guard({});
}  // it may refer to the communicator of a session that ends in a failure

std::optional<RunSummary> ElasticTrainer::run() {
  while (true) {
    const ElasticWorker::Next next = job_->elastic_worker().next();
    if (const auto* released = std::get_if<ElasticWorker::Released>(&next)) {
      if (released->save) save_as_last_worker(released->finish);
      if (lost_)
        throw_failure(
            Kind::system, "this worker was the last one, and left: {}",
            why_lost_.empty() ? "the updates since the newest checkpoint are lost: no worker had all of the state to save" : why_lost_);
      if (released->why) throw Failure{*released->why};
      return std::nullopt;
    }
    if (const auto* over = std::get_if<ElasticWorker::Over>(&next)) {
      if (session_ && session_->checkpoints) session_->checkpoints->job_ends();
      if (over->error) throw Failure{*over->error};
      return summary_;
    }
    train_in(std::get<ElasticWorker::Begun>(next));
  }
}

void ElasticTrainer::train_in(const ElasticWorker::Begun& epoch) {
  try {
    end_previous_epoch(epoch);
    enter(epoch);
    if (train() == Outcome::finished) return;
    status_.set_phase("waiting for the next roster");
    job_->elastic_worker().left(nullptr);
  } catch (const Failure& failure) {
    if (!job::ends_epoch(failure.error())) {
      if (diverged_ || unusable_ || (session_ && session_->loop && session_->loop->diverged())) {
        if (session_ && session_->checkpoints) session_->checkpoints->job_ends();
        job_->elastic_worker().fail_job(failure.error());
      }
      throw;
    }
    log_debug("membership epoch {} ended: {}", epoch.roster.epoch.value, failure.what());
    status_.set_phase("waiting for the next roster");
    job_->elastic_worker().guard({});
    if (session_ && session_->comm) session_->comm->abort(failure.error());
    job_->elastic_worker().left(&failure.error());
  }
}

ElasticTrainer::Outcome ElasticTrainer::train() {
  Session& s = *session_;
  TrainLoop& loop = *s.loop;
  std::int64_t shown = -1;
  while (true) {
    if (loop.position().epoch > elastic_state_.evaluated) end_epoch_of_data();
    if (loop.done()) return finish(), Outcome::finished;
    const auto epoch = loop.position().epoch;
    if (shown != epoch)
      s.logger->epoch_starts(epoch, std::max<std::int64_t>(config_.epochs, epoch + 1), loop.position().step, loop.steps_of_epoch(epoch));
    shown = epoch;
    if (step()) return transfer_before_leaving(), Outcome::changes;  // all of the roster stop here
    if (loop.position().epoch == epoch && job_->elastic_worker().may_write(s.roster.epoch)) s.checkpoints->save_if_due(false);
  }
}

// Whether the roster changes now.
bool ElasticTrainer::step() {
  Session& s = *session_;
  TrainLoop& loop = *s.loop;
  log_history(HistoryLine::Event::start, loop.step() + 1);
  snapshot_buffers();
  trained_ = true;
  change_ = prepared_ = false;
  const auto steps = loop.steps_of_epoch(loop.position().epoch), epoch = loop.position().epoch;
  const StepResult result = loop.train_step();
  buffers_.clear();
  commit_history_line();
  end_job_if_taken_over();
  if (settings_.after_step) {
    loop.engine().await_parameters();  // it may read them
    settings_.after_step(loop, s.comm->rank());
  }
  loop.compare_replicas_if_due();
  s.logger->step_done(result, loop.step(), loop.position().epoch != epoch ? steps : loop.position().step);
  if (loop.non_finite().too_many())
    loop.stop_for_non_finite_steps(s.checkpoints->newest_before(loop.non_finite().since(), &job_->elastic_worker().sealed()));
  return change_;
}

// Rank 0: no worker could save in its place either.
void ElasticTrainer::end_job_if_taken_over() {
  CheckpointManager& checkpoints = *session_->checkpoints;
  if (!checkpoints.taken_over()) return;
  unusable_ = true;
  checkpoints.refuse_if_taken_over();
}

void ElasticTrainer::end_epoch_of_data() {
  Session& s = *session_;
  const auto epoch = s.loop->position().epoch;
  s.logger->epoch_ends(s.loop->step());
  test_ = s.loop->evaluate();
  s.logger->evaluated(test_, s.loop->step(), epoch);
  s.logger->show_values(*s.loop, s.loop->step());
  s.checkpoints->save_if_due(true);
  elastic_state_.evaluated = epoch;
}

// Everything that the run leaves is on disk before any worker reports its end: a worker lost until then loses nothing.
void ElasticTrainer::finish() {
  Session& s = *session_;
  std::int64_t known = test_.samples;  // new workers did not see the last evaluation
  s.comm->all_reduce(collective::piece(std::span(&known, 1)), collective::Op::min, {.name = "is the evaluation known"});
  if (known == 0) test_ = s.loop->evaluate();
  status_.set_phase("writing the last checkpoint");
  end_job_if_taken_over();
  const bool saved = s.checkpoints->save_last(&job_->elastic_worker().sealed());
  if (!saved) end_job_if_taken_over();
  s.checkpoints->job_ends();
  summary_ = s.logger->finish(test_, *s.loop);
  summary_->saved = saved;
  if (!saved) summary_->lost = job::gather_texts(*s.comm, s.checkpoints->lost_text(), "what is lost").front();  // rank 0's
  summary_->rank = s.comm->rank().value;
  s.comm->barrier({.name = "the end of training"});
  job_->elastic_worker().ended(s.loop->step());
}

}  // namespace cohort::train
