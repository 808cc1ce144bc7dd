// From the first epoch of the job to the last, and from its first step to the last in each: the loop. elastic_entry.cc begins an epoch,
// elastic_carry.cc has what goes from one to the next, elastic_leave.cc what those do who leave, elastic_history.cc what is written down.
#include "cohort/train/loop/elastic_trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "cohort/base/log.h"
#include "cohort/train/loop/elastic_session.h"
#include "cohort/train/loop/trainer.h"

namespace cohort {

using group::HistoryLine;
using group::Seat;

ElasticTrainer::ElasticTrainer(group::SeatOptions seat, TrainConfig config, ElasticSettings settings, Whereabouts& where)
    : config_(std::move(config)),
      config_text_(bare_yaml(config_)),
      settings_(std::move(settings)),
      sharded_(shards_state(config_)),
      where_(where),
      materials_([&] {
        check(config_);
        check_elastic(config_);
        if (sharded_ && !seat.shards)
          throw_failure(Kind::usage,
                        "sync {} keeps a part of the state on every worker, and the coordinator of this job was not told so: start it with "
                        "`cohort train --min-n`",
                        config_.sync);
        where.doing("opening model and data");
        if (config_.threads == 0) config_.threads = settings_.threads;
        if (config_.threads > 0) at::set_num_threads(config_.threads);
        return gather_materials(config_);
      }()) {
  if (!settings_.history.empty()) history_.open(fmt::format("{}/{}.jsonl", settings_.history, getpid()), std::ios::app);
  where_.doing("waiting for the job to begin");
  job_ = std::make_unique<ElasticJob>(std::move(seat), settings_.job);
}

ElasticTrainer::~ElasticTrainer() { job_->seat().guard({}); }  // it may hold on to the communicator of a session that ends in a failure

std::optional<RunSummary> ElasticTrainer::run() {
  while (true) {
    const Seat::Next next = job_->seat().next();
    if (const auto* released = std::get_if<Seat::Released>(&next)) {
      if (released->save) save_alone(released->finish);
      if (lost_) throw_failure(Kind::system, "what was learned since the newest checkpoint is lost: nobody could save all of it");
      return std::nullopt;
    }
    if (const auto* over = std::get_if<Seat::Over>(&next)) {
      if (over->error) throw Failure{*over->error};
      return summary_;
    }
    train_in(std::get<Seat::Begun>(next));
  }
}

void ElasticTrainer::train_in(const Seat::Begun& epoch) {
  try {
    settle(epoch);
    enter(epoch);
    if (train() == Outcome::finished) return;
    where_.doing("waiting for the next roster");
    job_->seat().left(nullptr);
  } catch (const Failure& failure) {
    if (!ends_epoch(failure.error())) {
      if (diverged_ || (session_ && session_->learner && session_->learner->diverged())) job_->seat().condemn(failure.error());
      throw;
    }
    log_debug("epoch {} ended: {}", epoch.roster.epoch.value, failure.what());
    where_.doing("waiting for the next roster");
    job_->seat().guard({});
    if (session_ && session_->own) session_->own->abort(failure.error());
    job_->seat().left(&failure.error());
  }
}

ElasticTrainer::Outcome ElasticTrainer::train() {
  Session& s = *session_;
  Learner& learner = *s.learner;
  std::int64_t shown = -1;
  while (true) {
    if (learner.position().epoch > carried_.evaluated) end_epoch_of_data();
    if (learner.done()) return finish(), Outcome::finished;
    const auto epoch = learner.position().epoch;
    if (shown != epoch)
      s.chronicle->epoch_starts(epoch, std::max<std::int64_t>(config_.epochs, epoch + 1), learner.position().step,
                                learner.steps_of_epoch(epoch));
    shown = epoch;
    if (step()) return leave_shards(), Outcome::changes;  // all of the roster stop here
    if (learner.position().epoch == epoch && job_->seat().may_write(s.roster.epoch)) s.keeper->save_if_due(false);
  }
}

// Whether the roster changes now.
bool ElasticTrainer::step() {
  Session& s = *session_;
  Learner& learner = *s.learner;
  write_down(HistoryLine::Event::start, learner.step() + 1);
  keep_buffers();
  trained_ = true;
  change_ = prepared_ = false;
  const auto steps = learner.steps_of_epoch(learner.position().epoch), epoch = learner.position().epoch;
  const StepResult result = learner.train_step();
  buffers_.clear();
  commit_line();
  if (settings_.after_step) settings_.after_step(learner, s.comm->rank());
  learner.compare_replicas_if_due();
  s.chronicle->step_done(result, learner.step(), learner.position().epoch != epoch ? steps : learner.position().step);
  return change_;
}

void ElasticTrainer::end_epoch_of_data() {
  Session& s = *session_;
  const auto epoch = s.learner->position().epoch;
  s.chronicle->epoch_ends(s.learner->step());
  test_ = s.learner->evaluate();
  s.chronicle->evaluated(test_, s.learner->step(), epoch);
  s.chronicle->show_values(*s.learner, s.learner->step());
  s.keeper->save_if_due(true);
  carried_.evaluated = epoch;
}

// Everything that the run leaves is on disk before anybody says that it is over: whoever is lost until then does not take it along.
void ElasticTrainer::finish() {
  Session& s = *session_;
  std::int64_t known = test_.samples;  // newcomers did not see the last evaluation
  s.comm->all_reduce(collective::piece(std::span(&known, 1)), collective::Op::min, {.name = "is the evaluation known"});
  if (known == 0) test_ = s.learner->evaluate();
  where_.doing("writing the last checkpoint");
  s.keeper->finish(&job_->seat().sealed());
  s.keeper->save();
  s.keeper->finish(&job_->seat().sealed());
  summary_ = s.chronicle->finish(test_, *s.learner);
  summary_->saved = s.keeper->saved();
  if (s.comm->rank().value != 0) summary_.reset();
  s.comm->barrier({.name = "the end of training"});
  job_->seat().ended(s.learner->step());
}

}  // namespace cohort
