// An epoch of an elastic job begins: the step that was under way is finished or dropped, a TrainLoop is made on the new communicator, all
// workers receive the state, and the logs are opened.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "cohort/base/log.h"
#include "cohort/job/run_on_all.h"
#include "cohort/train/loop/elastic_session.h"
#include "cohort/train/loop/replicas.h"
#include "cohort/train/loop/same_data.h"
#include "cohort/train/loop/same_settings.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train {

using elastic::ElasticWorker;
using elastic::HistoryLine;
using elastic::StateRecovery;

// 1 The session of the epoch before is still there, and with it the step that was under way.
void ElasticTrainer::end_previous_epoch(const ElasticWorker::Begun& epoch) {
  const bool has = epoch.recovery != StateRecovery::heal && epoch.recovery != StateRecovery::disk;
  if (has) finish_pending_step(epoch.recovery == StateRecovery::finish);
  if (session_ && session_->checkpoints) session_->checkpoints->abandon_save(missing_in(epoch.roster));
  session_.reset();
  if (!sharded_)  // a new engine would take over what is there
    for (const auto& [name, p] : model_and_data_.model.named_parameters()) p.mutable_grad().reset();
  if (!has) return void(elastic_state_ = {});
  if (elastic_state_.step != *epoch.base)
    throw_failure(Kind::bug, "membership epoch {} goes on from step {}, and this worker is at step {}", epoch.roster.epoch.value,
                  *epoch.base, elastic_state_.step);
  if (!sharded_)
    job_->elastic_worker().have_state(elastic_state_.step);  // else when it is redistributed: until then there are only parts of it
}

// Ranks of the epoch before that are not in the next one. One that left as planned has ended its part of a save before.
std::vector<Rank> ElasticTrainer::missing_in(const group::Roster& next) const {
  std::vector<Rank> missing;
  for (const auto& m : session_->roster.members)
    if (std::ranges::none_of(next.members, [&](const auto& n) { return n.address == m.address && n.pid == m.pid; }))
      missing.push_back(m.rank);
  return missing;
}

// A step that is decided counts; one that is only prepared if the coordinator says so.
void ElasticTrainer::finish_pending_step(bool prepared_counts) {
  if (!session_ || !session_->ready) return;
  TrainLoop& loop = *session_->loop;
  const bool decided = loop.step_pending() && loop.decided() > loop.step();
  if (decided || (loop.step_pending() && prepared_ && prepared_counts)) {
    loop.finish_step_alone(loop.engine().decision());
    buffers_.clear();
    commit_history_line(!sharded_);
  }
  restore_buffers();
  elastic_state_ = capture_state();
}

void ElasticTrainer::open_loop(const ElasticWorker::Begun& epoch) {
  auto& comm = *session_->comm;
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto& members = epoch.roster.members;
  const auto& here = members[static_cast<std::size_t>(epoch.rank.value)].host;
  const auto ranks_here = static_cast<int>(std::ranges::count(members, here, &group::Member::host));
  session_->loop = std::make_unique<TrainLoop>(comm, config_, cores, ranks_here, status_, model_and_data_);
  const auto open = [&](const TrainConfig& config) {
    session_->checkpoints = std::make_unique<CheckpointManager>(comm, *session_->loop, config, config_text_, fence_);
  };
  if (epoch.roster.epoch.value == 1)
    open(config_);
  else  // the folder was this job's: whoever has it now took it over
    ends_job_if_refused([&] { open(resuming_config()); });
}

// 2 and 3
void ElasticTrainer::enter(const ElasticWorker::Begun& epoch) {
  status_.set_phase("connecting to the other ranks");
  session_ = std::make_unique<Session>();
  handed_over_.reset();  // it is in elastic_state_
  session_->roster = epoch.roster;
  fence_ = {launched_job_, epoch.roster.epoch.value};
  session_->comm = job_->connect(epoch);
  auto& comm = *session_->comm;
  session_->observed.emplace(comm, status_);
  refuse_other_settings_and_data();
  status_.set_phase("receiving the state");
  if (!sharded_ && !drifts_ && epoch.base) compare_survivors(epoch);
  if (sharded_ && std::exchange(entered_, true)) rebuild_model();
  if (!sharded_ && !epoch.base && std::exchange(trained_, false)) make_model_again();  // the model has updates that were lost
  open_loop(epoch);
  std::optional<std::int64_t> resumed;
  if (epoch.base)
    receive_state(epoch);
  else
    resumed = restore_checkpoint();
  if (!epoch.base) elastic_state_.evaluated = session_->loop->position().epoch;
  const bool fresh = !epoch.base || epoch.heal_from;
  if (fresh) log_history(epoch.heal_from ? HistoryLine::Event::heal : HistoryLine::Event::restart, session_->loop->step());
  if (sharded_) {  // until all have their new pieces another rank may need the old ones
    Shards old = std::move(elastic_state_.shards);
    elastic_state_ = capture_state();
    elastic_state_.shards.insert(elastic_state_.shards.end(), std::make_move_iterator(old.begin()), std::make_move_iterator(old.end()));
  }
  if (fresh || sharded_) job_->elastic_worker().have_state(session_->loop->step());
  session_->ready = !sharded_;
  session_->loop->engine().before_update([this] {
    prepare_history_line();
    prepared_ = true;
    change_ = job_->commit(*session_->comm);
  });
  open_logs(epoch, resumed);
  comm.barrier({.name = "the beginning of the epoch"});
  job_->elastic_worker().entered(session_->loop->step());  // from here on the old pieces are not needed
  session_->ready = true;
  elastic_state_.shards.clear();
  on_disk_ = false;
}

// A new worker read settings and data later than rank 0 did. It ends; the others notice that as any loss.
void ElasticTrainer::refuse_other_settings_and_data() {
  const int me = session_->comm->rank().value;
  const auto texts = job::gather_texts(*session_->comm, shared_yaml(config_), "settings");
  const auto differs = difference_of_settings(texts[0], texts[static_cast<std::size_t>(me)], me);
  if (!differs.empty()) throw_failure(Kind::usage, "the settings differ: {}; this worker cannot take part", differs);
  const auto sets = gather_fingerprints(*session_->comm, model_and_data_);
  const auto changed = difference_of_data(sets[0], sets[static_cast<std::size_t>(me)], me, config_);
  if (!changed.empty())
    throw_failure(Kind::usage, "the data differ: {}; this worker cannot take part: restore the files that the job began with", changed);
}

// When the folder or its checkpoints are refused, a worker that is started again could not take them either: the job ends. A file system
// that fails may do better for the next one.
void ElasticTrainer::ends_job_if_refused(const std::function<void()>& take) {
  try {
    take();
  } catch (const Failure& failure) {
    const Error& error = failure.error();
    unusable_ = session_->comm->rank().value == 0 && !job::ends_epoch(error) && error.kind != Kind::system;  // it has the cause
    throw;
  }
}

std::optional<std::int64_t> ElasticTrainer::restore_checkpoint() {
  std::optional<std::int64_t> step;
  ends_job_if_refused([&] { step = session_->checkpoints->restore(); });
  return step;
}

// From here on all have the state of rank 0: workers that have one must have the same, or it is unknown which one is right.
void ElasticTrainer::compare_survivors(const ElasticWorker::Begun& epoch) {
  if (config_.check_replicas == 0) return;
  auto& comm = *session_->comm;
  std::int32_t has = epoch.heal_from ? 0 : 1;
  comm.all_reduce(collective::piece(std::span(&has, 1)), collective::Op::sum, {.name = "number of workers with the state"});
  if (const auto text = compare_replicas(comm, model_and_data_.model.named_parameters(), *epoch.base, has)) {
    diverged_ = true;
    throw_failure(Kind::corrupt, "{}", *text);
  }
}

// Rank 0 has the state; all others receive it, also those that have it: the same bits.
void ElasticTrainer::receive_state(const ElasticWorker::Begun& epoch) {
  auto& comm = *session_->comm;
  TrainLoop& loop = *session_->loop;
  if (sharded_) {
    origins_ = redistribute(comm, elastic_state_.shards, loop);
  } else {
    if (!epoch.heal_from) restore_state(elastic_state_);
    loop.engine().set_rounds(elastic_state_.rounds);
    loop.engine().merge_drifted_state(!epoch.heal_from);  // before rank 0's is everybody's
    loop.engine().publish_loaded_state();
  }
  engine::restore_residuals(comm, loop.engine(), epoch.heal_from ? nullptr : &elastic_state_.residuals);
  std::int64_t position[] = {elastic_state_.step, elastic_state_.progress.epoch, elastic_state_.progress.taken, elastic_state_.evaluated,
                             elastic_state_.optimizer_start};
  comm.broadcast(collective::piece(std::span<std::int64_t>(position)), Rank{0}, {.name = "position to resume at"});
  optim::ScaleState scale = elastic_state_.scale;
  comm.broadcast({&scale, sizeof scale / 8, collective::Dtype::i64, collective::Device::cpu}, Rank{0}, {.name = "loss scale"});
  loop.scale().restore(scale, loop.scale().spec());
  const auto rebalanced = data::rebalance(loop.share(), {position[1], position[2]}, comm.rank().value, comm.size());
  loop.start_at(rebalanced.progress.epoch, rebalanced.progress.taken, position[0]);
  loop.set_optimizer_start(position[4]);
  elastic_state_.evaluated = position[3];
}

std::string ElasticTrainer::resume_text(const ElasticWorker::Begun& epoch, bool resumed) const {
  if (!epoch.base)
    return fmt::format("go on from the {}: no worker has {}the state", resumed ? "newest checkpoint" : "beginning",
                       sharded_ ? "all of " : "");
  const auto step = session_->loop->step();
  if (!sharded_) return fmt::format("go on after update {} with the state of rank 0 (process {})", step, epoch.roster.members.front().pid);
  const auto all = origins_.owner + origins_.transferred + origins_.buddy;
  const auto part = [&](std::int64_t elements) {
    return 100.0 * static_cast<double>(elements) / static_cast<double>(std::max<std::int64_t>(1, all));
  };
  std::string text = fmt::format("go on after update {} with redistributed shards", step);
  if (origins_.transferred > 0) text += fmt::format(", {:.0f} % of them transferred by workers that left", part(origins_.transferred));
  if (origins_.buddy > 0) text += fmt::format(", {:.0f} % of them from buddy copies of lost ranks", part(origins_.buddy));
  return text;
}

void ElasticTrainer::open_logs(const ElasticWorker::Begun& epoch, std::optional<std::int64_t> resumed) {
  auto& comm = *session_->comm;
  TrainLoop& loop = *session_->loop;
  session_->logger = std::make_unique<RunLogger>(comm, config_, config_text_, loop, [this] { return session_->checkpoints->may_write(); });
  auto& logger = *session_->logger;
  if (epoch.roster.epoch.value == 1)
    logger.say(fmt::format("{}: {} parameters ({}), {} ranks x {} samples, {} updates; workers may come and go", loop.model_spec(),
                           loop.model().parameter_count(), loop.groups(), comm.size(), config_.data.batch * config_.data.accumulate,
                           loop.total_steps()));
  if (epoch.roster.epoch.value == 1 && config_.check_replicas > 0 && comm.size() > 1 && !loop.has_replicas()) logger.say(kNothingToCompare);
  if (epoch.roster.epoch.value > 1)
    logger.note(fmt::format("membership epoch {}: {} ranks x {} samples {}", epoch.roster.epoch.value, comm.size(),
                            config_.data.batch * config_.data.accumulate, resume_text(epoch, resumed.has_value())),
                {{"step", loop.step()},
                 {"membership_epoch", epoch.roster.epoch.value},
                 {"ranks", comm.size()},
                 {"state_from", !epoch.base          ? (resumed ? "checkpoint" : "beginning")
                                : origins_.buddy > 0 ? "buddies"
                                                     : "peers"}});
  if (resumed) logger.resumed(*resumed, loop);
  if (const std::string changes = session_->checkpoints->changes(); !changes.empty()) logger.say(changes);
}

}  // namespace cohort::train
