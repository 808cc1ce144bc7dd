#include "cohort/launch/elastic_job.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "cohort/base/text.h"
#include "cohort/launch/exit_codes.h"
#include "cohort/launch/rank_setup.h"

namespace cohort::launch {
namespace {

constexpr Seconds kSaveLimit{8};      // for workers without a coordinator, to save what they have and end
constexpr Seconds kHangLimit{60};     // an elastic `cohort train` is over and a worker has ended well: how long another may take
constexpr Seconds kNoWorkerLimit{2};  // a job without any worker: for its coordinator to ask for new ones
constexpr Seconds kShortLife{1};      // a worker that ended sooner: another one is started in its place after a pause
constexpr int kMaxUsageFailures = 3;  // workers that joined later and said that the settings are wrong, before no more are started

}  // namespace

void ElasticJob::start() {
  for (int worker = 0; worker < plan_.ranks; ++worker) name_worker(worker);
  if (plan_.hosts.empty()) {
    local_ = &start_here();
    return;
  }
  missing_ = plan_.ranks - (plan_.hosts.back().first + plan_.hosts.back().ranks);
  if (!plan_.options.discovery_script.empty()) start_discovery();
  remote_ = &start_agents();
}

void ElasticJob::start_discovery() {
  const LaunchOptions& o = plan_.options;
  discovery_.emplace(DiscoveryPlan{.command = o.discovery_script,
                                   .every = o.discovery_interval,
                                   .slots_per_host = o.slots_per_host,
                                   .known = plan_.pool,
                                   .environment = plan_.environment,
                                   .signal_mask = signals_.mask_before()});
}

Deadline ElasticJob::add_polls(std::vector<pollfd>& fds) {
  Deadline next = hang_deadline_.sooner(rendezvous_.next_look());
  next = next.sooner(brief_lives_.until()).sooner(failed_starts_.until()).sooner(failed_restarts_.until());
  if (!ranks_->busy()) next = next.sooner(no_worker_deadline_);
  if (!discovery_) return next;
  discovery_->add_polls(fds);
  return next.sooner(discovery_->next_look());
}

bool ElasticJob::handle_signal(int number) {
  if (number != SIGUSR2) return false;
  if (usage_failures_ < kMaxUsageFailures || missing_ == 0) ++requested_;  // else those who were asked for are still to come
  usage_failures_ = 0;
  return true;
}

void ElasticJob::child_ended(pid_t pid, int status) {
  if (discovery_) discovery_->ended(pid, status);
  JobLoop::child_ended(pid, status);
}

std::string ElasticJob::name_of(int worker) const {
  const auto part = parts_.find(worker);
  return part == parts_.end() ? fmt::format("worker {}", worker) : fmt::format("worker {} (rank {})", worker, part->second.rank.value);
}

void ElasticJob::name_worker(int worker) {
  started_at_.try_emplace(worker, Clock::now());
  terminal_.screen().name(worker, name_of(worker));
}

// Of a job that was given up only the cause is still to be said: what its coordinator makes of the workers that end now is none.
void ElasticJob::coordinator_says(const std::string& line) { given_up_ ? say_verbose(line) : say(line); }

// Workers are told of an epoch after the launcher is.
void ElasticJob::before_output() {
  for (const Begun& begun : rendezvous_.take_begun()) {
    for (int worker = ranks_->first(); worker < ranks_->first() + ranks_->size(); ++worker) {
      if (!(*ranks_)[worker].running() || process_of(worker) != begun.process) continue;
      parts_[worker] = {begun.epoch, begun.rank};
      name_worker(worker);
    }
  }
}

// Whether the job had gone on without this worker, or never had it: then no step was its to save.
bool ElasticJob::went_without(int worker) const {
  const auto part = parts_.find(worker);
  if (part == parts_.end()) return plan_.worker.preemptible && !parts_.empty();
  return std::ranges::any_of(parts_, [&](const auto& other) { return other.second.epoch.value > part->second.epoch.value; });
}

// The job goes on without it, unless it is one of the first and has said that the settings are wrong: they are for all of them.
void ElasticJob::note_end(const Ranks::Ended& e) {
  const elastic::Process process = process_of(e.rank);
  if (!e.seen) return note_lost_with_host(e, process);
  const bool unexpected = e.status != 0 && !rendezvous_.released(process) && !stopped();
  const std::string where = (*ranks_)[e.rank].host.empty() ? "" : fmt::format(" on host {}", process.host);
  const std::string text = fmt::format("{} (process {}{}) ended: {}", name_of(e.rank), process.pid, where, e.how);
  const bool after_training = failed_after_training(e);
  const bool usage_failure = exit_code_of(e.status) == kExitUsage && plan_.worker.reports_usage;
  const bool told = usage_failure && e.rank < plan_.ranks;  // by itself, in the one line that is to be the last
  (unexpected && !told && !given_up_) || after_training ? say(text) : say_verbose(text);
  if (after_training) note_failure_after_end(e);
  if (told) return fail(e.rank, e.status);
  if (usage_failure && ++usage_failures_ == kMaxUsageFailures)
    say("the settings are no longer what the others train with: no more workers are started; SIGUSR2 asks for one when they are");
  if (unexpected) last_end_ = e;
  if (unexpected && !usage_failure && !rendezvous_.ending()) note_own_failure(e);
  if (unexpected) note_life(e.rank);
  const bool refused = usage_failure && !told;  // its data or settings: it took no part
  if (stopped() && e.status != 0 && !refused && !went_without(e.rank)) stopped_worker_failed_ = true;
  if (e.status == 0 && plan_.worker.preemptible && rendezvous_.ending() && hang_deadline_.never())
    hang_deadline_ = Deadline::in(kHangLimit);
  rendezvous_.process_ended(process, e.how);
  if (ranks_->running() == 0) no_worker_deadline_ = Deadline::in(kNoWorkerLimit);
}

RankFailure ElasticJob::report_of(const Ranks::Ended& e) const {
  const RankState& state = (*ranks_)[e.rank];
  return {.rank = e.rank,
          .pid = state.pid,
          .status = e.status,
          .after = elapsed(),
          .last_lines = output_.last_lines(e.rank),
          .host = state.host,
          .name = name_of(e.rank),
          .how = e.how};
}

// Where the next worker would end so, too, those that are left save what they have, and the job ends.
void ElasticJob::note_own_failure(const Ranks::Ended& e) {
  if (!WorkerFailures::is_own(e.status, e.for_memory) || given_up_) return;
  ranks_->move(Clock::now(), true, true);  // all that it wrote before it ended
  RankFailure report = report_of(e);
  const auto part = parts_.find(e.rank);
  const auto why = own_failures_.add({.worker = e.rank,
                                      .name = report.name,
                                      .status = e.status,
                                      .epoch = part == parts_.end() ? 0 : part->second.epoch.value,
                                      .started = ranks_->size(),
                                      .last_lines = report.last_lines,
                                      .for_memory = e.for_memory,
                                      .at = elapsed()},
                                     rendezvous_.committed());
  if (!first_failure_) first_failure_ = std::move(report);
  if (!why) return;
  given_up_ = true;
  say(*why);
  stop(SIGTERM, plan_.options.stop_grace);
}

// Workers that end as soon as they are started, whatever kills them, are not started as fast as the machine can.
void ElasticJob::note_life(int worker) {
  const auto at = started_at_.find(worker);
  const bool brief = at != started_at_.end() && Clock::now() - at->second < kShortLife;
  brief ? brief_lives_.again() : brief_lives_.reset();
}

void ElasticJob::note_failure_after_end(const Ranks::Ended& e) {
  ranks_->move(Clock::now(), true, true);  // all that it wrote before it ended
  if (!failed_after_end_) failed_after_end_ = report_of(e);
}

// What a program does after training is its own, and nobody is started again for it. A worker of `cohort train` has saved by then, or says
// by its exit status that it could not.
bool ElasticJob::failed_after_training(const Ranks::Ended& e) const {
  if (e.status == 0 || (plan_.worker.preemptible && !WIFEXITED(e.status)) || stopped() || timed_out_ || terminal_.reader_gone())
    return false;
  const auto ending = rendezvous_.ending();
  return ending && !ending->error;
}

// Nobody saw it end: the coordinator goes by its connection only. One of the first, before the job began, is started again elsewhere.
void ElasticJob::note_lost_with_host(const Ranks::Ended& e, const elastic::Process& process) {
  if (ranks_->running() == 0) no_worker_deadline_ = Deadline::in(kNoWorkerLimit);
  if (stopped() || host_failure_) return;
  if (!last_end_) last_end_ = e;
  rendezvous_.formed() ? rendezvous_.process_vanished(process, e.how) : rendezvous_.process_ended(process, e.how);
}

elastic::Process ElasticJob::process_of(int worker) const {
  const RankState& state = (*ranks_)[worker];
  return {state.pid, state.host.empty() ? group::kThisHost : state.host};
}

void ElasticJob::after_ends() {
  if (discovery_) look_for_hosts();
  start_missing_workers();
  if (plan_.options.supervised) restart_coordinator_if_due();
}

void ElasticJob::look_for_hosts() {
  discovery_->move();
  for (const auto& line : discovery_->take_messages()) say(line);
  const auto hosts = discovery_->take_hosts();
  if (!hosts || stopped() || host_failure_) return;
  const int added_slots = remote_->set_pool(*hosts);
  const int most = plan_.options.max_workers > 0 ? plan_.options.max_workers : plan_.ranks;
  missing_ += std::clamp(most - remote_->running() - missing_, 0, added_slots);
}

void ElasticJob::start_missing_workers() {
  missing_ = std::max(0, missing_ + rendezvous_.take_wanted() + std::exchange(requested_, 0) - rendezvous_.take_rejoined());
  const bool lives_ready = brief_lives_.ready(), starts_ready = failed_starts_.ready();  // both: a pause that is over wakes poll()
  if (stopped() || given_up_ || !failures_.empty() || host_failure_ || timed_out_ || rendezvous_.ending()) return void(missing_ = 0);
  if (!lives_ready || !starts_ready || usage_failures_ >= kMaxUsageFailures) return;
  while (missing_ > 0 && (remote_ == nullptr || remote_->has_free_slot()))
    if (!start_worker()) return;
  if (remote_ != nullptr) report_missing();
}

void ElasticJob::report_missing() {
  if (missing_ > reported_missing_)
    say(fmt::format("{} more worker{} wanted, and no host has a free slot", missing_, missing_ == 1 ? " is" : "s are"));
  reported_missing_ = missing_;
}

// Without descriptors, processes or memory nothing was started: the worker stays among the missing ones, and no respawn is used up. A
// program that is no longer one uses them up, so that the attempts end.
bool ElasticJob::start_worker() {
  try {
    const int number = remote_ != nullptr ? remote_->add() : add_here();
    --missing_;
    output_.open_more();
    name_worker(number);
    const RankState& worker = (*ranks_)[number];
    say_verbose(remote_ != nullptr ? fmt::format("worker {} is to run on host {}", number, worker.host)
                                   : fmt::format("worker {} is process {}", number, worker.pid));
    if (failed_starts_.reset()) say("workers can be started again");
    return true;
  } catch (const NoProgram& problem) {
    --missing_;
    rendezvous_.spawn_failed(problem.what());
    failed_starts_.again();
  } catch (const std::exception& problem) {
    const std::string text = fmt::format("a worker cannot be started: {}; it is tried again, every {} at the latest", problem.what(),
                                         format_seconds(BackOff::kLongest));
    failed_starts_.again() ? say(text) : say_verbose(text);
  }
  return false;
}

int ElasticJob::add_here() {
  RankSetting setting = rank_setting(plan_, rendezvous_);
  setting.rank = ranks_->first() + ranks_->size();
  return local_->add(child_plan(plan_, setting, signals_));
}

// After start_missing_workers(): the workers that the lost coordinator had asked for are then started, or among the missing ones that the
// next one is told about.
void ElasticJob::restart_coordinator_if_due() {
  const bool ready = failed_restarts_.ready();
  if (ready && rendezvous_.coordinator_due() && (ranks_->busy() || !rendezvous_.ending())) restart_coordinator();
  const auto ending = rendezvous_.ending();
  if (ending && ending->error && rendezvous_.coordinator() < 0 && !std::exchange(coordinator_lost_, true)) stop(SIGTERM, kSaveLimit);
}

void ElasticJob::restart_coordinator() {
  try {
    rendezvous_.restart_coordinator(workforce());
  } catch (const std::exception& problem) {
    const std::string text = fmt::format("the coordinator cannot be started again: {}; it is tried again, every {} at the latest",
                                         problem.what(), format_seconds(BackOff::kLongest));
    return failed_restarts_.again() ? say(text) : say_verbose(text);
  }
  failed_restarts_.reset();
  for (const auto& line : rendezvous_.take_lines()) coordinator_says(line);
  say_verbose(fmt::format("the coordinator is process {}", rendezvous_.coordinator()));
}

elastic::Workforce ElasticJob::workforce() const {
  elastic::Workforce all{.running = {}, .ended = {}, .pending = missing_};
  for (int r = ranks_->first(); r < ranks_->first() + ranks_->size(); ++r) {
    if ((*ranks_)[r].lost_with_host) continue;
    ((*ranks_)[r].running() ? all.running : all.ended).push_back(process_of(r));
  }
  const auto runs = [&](const auto& one) { return std::ranges::find(all.running, one) != all.running.end(); };
  std::erase_if(all.ended, runs);  // the system has used its number again
  return all;
}

// An elastic job may be without any worker for a moment, while its replacements are being started.
bool ElasticJob::goes_on() const {
  if (ranks_->busy()) return true;
  if (stopped() || given_up_ || !failures_.empty() || host_failure_ || timed_out_ || terminal_.reader_gone() || rendezvous_.ending())
    return false;
  if (missing_ > 0 && (brief_lives_.pausing() || failed_starts_.pausing())) return true;
  if (remote_ != nullptr && missing_ > 0 && usage_failures_ < kMaxUsageFailures)
    return true;  // a host may come back; the coordinator knows when that takes too long
  return !no_worker_deadline_.passed();
}

void ElasticJob::check_deadlines() {
  rendezvous_.check_coordinator();
  if (!hang_deadline_.passed()) return;
  hang_deadline_ = Deadline{};
  if (ranks_->running() > 0 && !stopping()) end_hung_workers();
}

// They may be in a call that never returns; the others are done.
void ElasticJob::end_hung_workers() {
  say(fmt::format("the job is over, and {} of its workers did not end within {}: they hang", ranks_->running(),
                  format_seconds(kHangLimit)));
  stop(SIGTERM, plan_.options.grace);
}

// Where the run goes on from, as far as the launcher can know.
std::string ElasticJob::next_start() const {
  if (!plan_.worker.newest_checkpoint) return "";
  const std::string newest = plan_.worker.newest_checkpoint();
  return newest.empty() ? "; nothing was saved: started again it begins anew" : fmt::format("; started again it goes on from {}", newest);
}

// The cause comes last.
int ElasticJob::say_failure(const std::string& text) {
  say(text + next_start());
  if (!first_failure_) return kExitFailure;
  terminal_.screen().say(failure_text(*first_failure_));
  return exit_code_of(first_failure_->status);
}

std::optional<int> ElasticJob::own_exit_code() {
  const auto ending = rendezvous_.ending();
  if (given_up_) return say_failure(fmt::format("the job was given up after {}", format_seconds(elapsed())));
  if (ending && !ending->error && failed_after_end_) {
    say(fmt::format("{} failed after the job had been trained to its end", failed_after_end_->name));
    terminal_.screen().say(failure_text(*failed_after_end_));
    return exit_code_of(failed_after_end_->status);
  }
  if (ending && !ending->error) return say_verbose(fmt::format("trained to the end after {}", format_seconds(elapsed()))), 0;
  if (ending && ending->error->kind != Kind::peer_lost)  // the coordinator has said why
    return ending->error->kind == Kind::usage && plan_.worker.reports_usage ? kExitUsage : kExitFailure;
  const std::string how = last_end_ ? fmt::format("; the last one, {}, ended: {}", name_of(last_end_->rank), last_end_->how) : "";
  const int failure_code = say_failure(fmt::format("no worker is left after {}{}", format_seconds(elapsed()), how));
  const int code = last_end_ ? exit_code_of(last_end_->status) : failure_code;
  return code == 0 ? kExitFailure : code;
}

}  // namespace cohort::launch
