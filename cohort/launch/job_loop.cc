#include "cohort/launch/job_loop.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "cohort/base/text.h"
#include "cohort/launch/exit_codes.h"
#include "cohort/launch/process_tree.h"
#include "cohort/launch/rank_setup.h"

namespace cohort::launch {
namespace {

constexpr Seconds kEndLimit{1};         // for what is left after the ranks; they themselves are gone by then
constexpr Seconds kSaveLimit{8};        // for workers whose foreground process is gone, to save what they have and end
constexpr Seconds kFailureSettle{0.5};  // after the first failure, before the others are asked to end: they may print something about it
constexpr int kLastReads = 64;          // of output that ranks left in their pipes

}  // namespace

JobLoop::JobLoop(LaunchPlan plan, Signals& signals)
    : plan_(std::move(plan)),
      signals_(signals),
      terminal_(plan_),
      output_(plan_.options, terminal_.screen()),
      rendezvous_(rendezvous_options(plan_)),
      job_ends_(Deadline::in(plan_.options.timeout)) {}

int JobLoop::run() {
  try {
    start_ranks();
  } catch (const NoProgram&) {
    kill_descendants(Deadline::in(kEndLimit));
    throw;
  }
  while (goes_on() && !foreground_gone_) poll_once();
  foreground_gone_ = foreground_gone_ || !plan_.foreground;
  shut_down();
  return exit_code();
}

void JobLoop::start_ranks() {
  start();
  if (plan_.input > 2 && plan_.hosts.empty()) close(plan_.input);
  rendezvous_.open();  // after the last fork: from here on there is a second thread
  if (plan_.options.supervised) say_verbose(fmt::format("the coordinator is process {}", rendezvous_.coordinator()));
}

LocalRanks& JobLoop::start_here() {
  RankSetting setting = rank_setting(plan_, rendezvous_);
  say_verbose(fmt::format("job {}: {} rank{} of {}; rendezvous at {}; MASTER_PORT {}; {} thread{} each (OMP_NUM_THREADS), {} cores",
                          rendezvous_.job(), setting.size, setting.size == 1 ? "" : "s", plan_.program.path, rendezvous_.address(),
                          rendezvous_.master_port(), setting.threads, setting.threads == 1 ? "" : "s", usable_cores(plan_.host)));
  std::vector<ChildPlan> children;
  for (int i = 0; i < plan_.ranks; ++i, ++setting.rank) children.push_back(child_plan(plan_, setting, signals_));
  auto local = std::make_unique<LocalRanks>(output_);
  LocalRanks& ranks = *local;
  if (plan_.options.elastic()) ranks.signal_leaders_only();
  output_.open_files(setting.first, plan_.ranks);
  ranks.start(setting.first, children);
  ranks_ = std::move(local);
  for (int r = 0; r < plan_.ranks; ++r)
    say_verbose(fmt::format("{} {} is process {}, cores {}", plan_.options.elastic() ? "worker" : "rank", setting.first + r,
                            ranks[setting.first + r].pid, list_cpus(children[static_cast<std::size_t>(r)].cpus)));
  return ranks;
}

RemoteRanks& JobLoop::start_agents() {
  say_verbose(fmt::format("job {}: {} ranks of {} on {} host{}; rendezvous at port {}", rendezvous_.job(), plan_.ranks, plan_.program.path,
                          plan_.hosts.size(), plan_.hosts.size() == 1 ? "" : "s", rendezvous_.port()));
  RemotePlan remote = remote_plan(plan_, rendezvous_, signals_);
  remote.other_ended = [this](pid_t pid, int status) { child_ended(pid, status); };
  auto ranks = std::make_unique<RemoteRanks>(output_);
  RemoteRanks& started = *ranks;
  output_.open_files(0, plan_.hosts.back().first + plan_.hosts.back().ranks);
  started.start(std::move(remote));
  ranks_ = std::move(ranks);
  return started;
}

// One round: wait for anything, then look at everything.
void JobLoop::poll_once() {
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}, {plan_.foreground.get(), POLLIN, 0}, {rendezvous_.lines_fd(), POLLIN, 0}};
  terminal_.add_polls(fds);
  const bool take_stdout = !terminal_.full(1), take_stderr = !terminal_.full(2);
  ranks_->add_polls(fds, take_stdout, take_stderr);
  Deadline next = terminal_.screen().next_idle().sooner(kill_at_).sooner(stop_at_).sooner(job_ends_).sooner(ranks_->next_look());
  next = next.sooner(add_polls(fds));
  poll(fds.data(), fds.size(), next.left_ms());

  if (fds[1].revents != 0) on_foreground_lost();
  for (const auto& line : rendezvous_.take_lines()) coordinator_says(line);
  before_output();
  ranks_->move(Clock::now(), take_stdout, take_stderr);
  for (const auto& line : ranks_->take_verbose()) say_verbose(line);
  for (const auto& line : ranks_->take_messages()) say(line);
  for (const int number : signals_.take()) take_signal(number);
  note_ends();
  after_ends();
  terminal_.screen().show_idle(Clock::now());
  const bool had_reader = !terminal_.reader_gone();
  terminal_.write();
  if (had_reader && terminal_.reader_gone()) stop(SIGTERM, plan_.options.grace);  // `cohort run yes | head` ends as `yes | head` does
  check_clock();
}

// Nobody is left to run the job for. Workers that can save get a moment for it.
void JobLoop::on_foreground_lost() {
  plan_.foreground.reset();
  foreground_gone_ = !plan_.saves_on_launcher_loss();
  if (foreground_gone_) return;
  stopped_by_ = SIGTERM;
  stop(SIGTERM, kSaveLimit);
}

void JobLoop::take_signal(int number) {
  if (number == SIGCHLD) return;                          // note_ends() looks in every round
  if (number == SIGTSTP) return ranks_->signal(SIGSTOP);  // their groups are not the terminal's, so the terminal could not stop them
  if (handle_signal(number)) return;
  if (number == SIGCONT || number == SIGUSR1 || number == SIGUSR2) return ranks_->signal(number);
  if (number == SIGQUIT && plan_.worker.sigquit_reports) return ranks_->signal(number);
  const bool again = stopped() && number == SIGINT;
  if (!stopped()) stopped_by_ = number;
  if (again) return stop(SIGKILL, Seconds{0});
  ranks_->signal(SIGCONT);
  stop(number, plan_.options.stop_grace);
}

// Ranks that ended in the same moment: one that a signal killed is the likelier cause, since the others may have failed over its loss.
void JobLoop::note_ends() {
  if (auto host_failure = ranks_->take_host_failure(); host_failure && !host_failure_) fail(std::move(*host_failure));
  auto ended = ranks_->take_ends();
  for (const auto& other : ranks_->take_others()) child_ended(other.pid, other.status);
  std::stable_sort(ended.begin(), ended.end(), [](const auto& a, const auto& b) { return WIFSIGNALED(a.status) > WIFSIGNALED(b.status); });
  for (const auto& e : ended) note_end(e);
}

void JobLoop::fail(int rank, int status) {
  if (host_failure_ || stopped() || timed_out_ || terminal_.reader_gone()) return;
  const RankState& lost = (*ranks_)[rank];
  RankFailure failure{rank, lost.pid, status, elapsed(), 0, {}, lost.host, {}, lost.how};
  if (!failures_.empty()) {
    const bool killed_by_others = WIFSIGNALED(status) && WTERMSIG(status) != SIGTERM && !killed_;  // by none of our signals
    if (!stop_at_.never() || killed_by_others) failures_.add(std::move(failure));
    return;
  }
  failure.others_stopped = ranks_->running();
  failures_.add(std::move(failure));
  const Seconds recovery = plan_.worker.recovery_limit;
  if (recovery > Seconds{0}) return void(kill_at_ = kill_at_.sooner(Deadline::in(recovery)));
  stop_at_ = Deadline::in(kFailureSettle);
}

void JobLoop::fail(Ranks::HostFailure host_failure) {
  if (!failures_.empty() || stopped() || timed_out_ || terminal_.reader_gone()) return;
  host_failure_ = std::move(host_failure);
  stop(SIGTERM, plan_.options.grace);
}

void JobLoop::stop(int number, Seconds grace) {
  ranks_->signal(number);
  kill_at_ = kill_at_.sooner(Deadline::in(grace));
}

void JobLoop::check_clock() {
  if (!timed_out_ && job_ends_.passed()) {
    timed_out_ = true;
    job_ends_ = Deadline{};
    stop(SIGTERM, plan_.options.grace);
  }
  check_deadlines();
  if (stop_at_.passed()) {
    stop_at_ = Deadline{};
    stop(SIGTERM, plan_.options.grace);
  }
  if (kill_at_.passed() && !killed_) {
    killed_ = true;
    kill_at_ = Deadline{};
    ranks_->signal(SIGKILL);
  }
}

// No rank runs any more, or nobody is left to run them for: nothing may stay behind.
void JobLoop::shut_down() {
  rendezvous_.close();
  if (foreground_gone_) ranks_->signal(SIGKILL);
  const auto left = end_descendants(Deadline::in(kEndLimit));
  ranks_->take_ends();
  if (!left.empty()) say(fmt::format("{} processes of this job could not be ended (process {} is one)", left.size(), left.front()));
  for (int i = 0; i < kLastReads && ranks_->anything_open() && !foreground_gone_; ++i) ranks_->move(Clock::now(), true, true);
  for (const auto& line : rendezvous_.take_lines()) coordinator_says(line);
  terminal_.screen().finish_all();
}

// The cause is the last thing on the screen.
int JobLoop::exit_code() {
  int code = 0;
  const bool undisturbed = !stopped() && !timed_out_ && !terminal_.reader_gone();
  if (!failures_.empty()) {
    const RankFailure cause = failures_.cause([this](int rank) { return output_.last_lines(rank); });
    code = exit_code_of(cause.status);
    const bool told = (code == kExitUsage && plan_.worker.reports_usage) || code == plan_.worker.answer_status;
    if (!told) terminal_.screen().say(failure_text(cause));
  } else if (host_failure_) {
    code = host_failure_->code;
    say(host_failure_->what);
  } else if (const auto own = undisturbed ? own_exit_code() : std::nullopt; own) {
    code = *own;
  } else if (timed_out_) {
    code = kExitTimeout;
    say(fmt::format("stopped: the job ran longer than --timeout {}", format_seconds(plan_.options.timeout)));
  } else if (terminal_.reader_gone()) {
    code = kExitSignalBase + SIGPIPE;
  } else if (stopped()) {
    if (ended_badly()) code = kExitSignalBase + stopped_by_;
    if (!plan_.options.quiet) say(fmt::format("stopped by {} after {}", signal_name(stopped_by_), format_seconds(elapsed())));
  } else {
    say_verbose(fmt::format("all {} ranks ended well after {}", ranks_->size(), format_seconds(elapsed())));
  }
  if (foreground_gone_) {
    terminal_.write();
    return kExitFailure;
  }
  terminal_.flush(signals_, plan_.foreground.get());
  return code;
}

}  // namespace cohort::launch
