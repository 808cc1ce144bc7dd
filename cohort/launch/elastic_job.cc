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
constexpr int kMaxUsageFailures = 3;  // workers that joined later and said that the settings are wrong, before no more are started

}  // namespace

void ElasticJob::start() {
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
  Deadline next = hang_deadline_;
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

// The job goes on without it, unless it is one of the first and has said that the settings are wrong: they are for all of them.
void ElasticJob::note_end(const Ranks::Ended& e) {
  const elastic::Process process = process_of(e.rank);
  if (!e.seen) return note_lost_with_host(e, process);
  const bool unexpected = e.status != 0 && !rendezvous_.released(process) && !stopped();
  const std::string where = (*ranks_)[e.rank].host.empty() ? "" : fmt::format(" on host {}", process.host);
  const std::string text = fmt::format("worker {} (process {}{}) ended: {}", e.rank, process.pid, where, e.how);
  const bool after_training = failed_after_training(e);
  unexpected || after_training ? say(text) : say_verbose(text);
  if (after_training && !failed_after_end_) failed_after_end_ = e;
  const bool usage_failure = exit_code_of(e.status) == kExitUsage && plan_.worker.reports_usage;
  if (usage_failure && e.rank < plan_.ranks) return fail(e.rank, e.status);
  if (usage_failure && ++usage_failures_ == kMaxUsageFailures)
    say("the settings are no longer what the others train with: no more workers are started; SIGUSR2 asks for one when they are");
  if (unexpected) last_end_ = e;
  if (stopped() && e.status != 0) stopped_worker_failed_ = true;
  if (e.status == 0 && plan_.worker.preemptible && rendezvous_.ending() && hang_deadline_.never())
    hang_deadline_ = Deadline::in(kHangLimit);
  rendezvous_.process_ended(process, e.how);
  if (ranks_->running() == 0) no_worker_deadline_ = Deadline::in(kNoWorkerLimit);
}

// What a program does after training is its own, and nobody is started again for it. A worker of `cohort train` has saved by then.
bool ElasticJob::failed_after_training(const Ranks::Ended& e) const {
  if (e.status == 0 || plan_.worker.preemptible || stopped() || timed_out_ || terminal_.reader_gone()) return false;
  const auto ending = rendezvous_.ending();
  return ending && !ending->error;
}

// Nobody saw it end: the coordinator goes by its connection only. One of the first, before the job began, is started again elsewhere.
void ElasticJob::note_lost_with_host(const Ranks::Ended& e, const elastic::Process& process) {
  if (ranks_->running() == 0) no_worker_deadline_ = Deadline::in(kNoWorkerLimit);
  if (stopped() || host_failure_) return;
  if (!last_end_) last_end_ = e;
  if (rendezvous_.formed()) return rendezvous_.process_vanished(process, e.how);
  ++missing_;
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
  if (stopped() || !failures_.empty() || host_failure_ || timed_out_ || rendezvous_.ending()) return void(missing_ = 0);
  if (usage_failures_ >= kMaxUsageFailures) return;
  remote_ != nullptr ? start_workers_on_hosts() : start_workers_here();
}

void ElasticJob::start_workers_on_hosts() {
  for (; missing_ > 0 && remote_->has_free_slot(); --missing_) {
    output_.open_more();
    const int number = remote_->add();
    say_verbose(fmt::format("worker {} is to run on host {}", number, (*ranks_)[number].host));
  }
  if (missing_ > reported_missing_)
    say(fmt::format("{} more worker{} wanted, and no host has a free slot", missing_, missing_ == 1 ? " is" : "s are"));
  reported_missing_ = missing_;
}

void ElasticJob::start_workers_here() {
  for (; missing_ > 0; --missing_) {
    RankSetting setting = rank_setting(plan_, rendezvous_);
    setting.rank = ranks_->first() + ranks_->size();
    try {
      output_.open_more();
      const int number = local_->add(child_plan(plan_, setting, signals_));
      say_verbose(fmt::format("worker {} is process {}", number, (*ranks_)[number].pid));
    } catch (const std::exception& problem) {
      rendezvous_.spawn_failed(problem.what());
    }
  }
}

// After start_missing_workers(): the workers that the lost coordinator had asked for are then started, or among the missing ones that the
// next one is told about.
void ElasticJob::restart_coordinator_if_due() {
  if (rendezvous_.coordinator_due() && (ranks_->busy() || !rendezvous_.ending())) {
    rendezvous_.restart_coordinator(workforce());
    for (const auto& line : rendezvous_.take_lines()) say(line);
    say_verbose(fmt::format("the coordinator is process {}", rendezvous_.coordinator()));
  }
  const auto ending = rendezvous_.ending();
  if (ending && ending->error && rendezvous_.coordinator() < 0 && !std::exchange(coordinator_lost_, true)) stop(SIGTERM, kSaveLimit);
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
  if (stopped() || !failures_.empty() || host_failure_ || timed_out_ || terminal_.reader_gone() || rendezvous_.ending()) return false;
  if (remote_ != nullptr && missing_ > 0 && usage_failures_ < kMaxUsageFailures)
    return true;  // a host may come back; the coordinator knows when that takes too long
  return !no_worker_deadline_.passed();
}

void ElasticJob::check_deadlines() {
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

std::optional<int> ElasticJob::own_exit_code() {
  const auto ending = rendezvous_.ending();
  if (ending && !ending->error && failed_after_end_) {
    say(fmt::format("worker {} failed after the job had been trained to its end: {}", failed_after_end_->rank, failed_after_end_->how));
    return exit_code_of(failed_after_end_->status);
  }
  if (ending && !ending->error) return say_verbose(fmt::format("trained to the end after {}", format_seconds(elapsed()))), 0;
  if (ending && ending->error->kind != Kind::peer_lost) return kExitFailure;  // the coordinator has said why
  const std::string how = last_end_ ? fmt::format("; the last one, worker {}, ended with {}", last_end_->rank, last_end_->how) : "";
  say(fmt::format("no worker is left after {}{}; the job goes on from its newest checkpoint when it is started again",
                  format_seconds(elapsed()), how));
  const int code = last_end_ ? exit_code_of(last_end_->status) : kExitFailure;
  return code == 0 ? kExitFailure : code;
}

}  // namespace cohort::launch
