#include "cohort/cli/run_launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/cli/cli.h"
#include "cohort/cli/run_discovery.h"
#include "cohort/cli/run_environment.h"
#include "cohort/cli/run_meeting.h"
#include "cohort/cli/run_output.h"
#include "cohort/cli/run_ranks.h"
#include "cohort/cli/run_remote.h"
#include "cohort/cli/run_report.h"
#include "cohort/cli/run_screen.h"
#include "cohort/cli/run_shell.h"
#include "cohort/cli/run_tree.h"

namespace cohort::cli {
namespace {

constexpr std::size_t kFullSink = 1 << 20;  // more unread output than this holds the ranks back
constexpr std::size_t kWriteBytes = 4096;   // PIPE_BUF: what a pipe that polls writable takes without blocking
constexpr Seconds kEndLimit{1};             // for what is left after the ranks; they themselves are gone by then

bool same_file(int a, int b) {
  struct stat x {
  }, y{};
  return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

ScreenStyle style_for(const RunOptions& options) {
  const auto colored = [&](int fd) { return options.color == "always" || (options.color == "auto" && color_wanted(fd)); };
  const auto over_bar = [&](int fd) { return options.draws_bar && isatty(fd) == 1; };
  return {options.prefix, {colored(1), colored(2)}, {over_bar(1), over_bar(2)}, same_file(1, 2)};
}

constexpr Seconds kSaveLimit{8};   // for workers that nobody coordinates any more, to save what they have and end
constexpr Seconds kMoment{0.5};    // after the first failure, before the others are asked to end: they may have something to say of it
constexpr Seconds kLateLimit{60};  // an elastic `cohort train` is over and a worker has ended well: how long another may take
constexpr int kMostUnfit = 3;      // newcomers that told that the settings are wrong, before no more are started
constexpr Seconds kEmptyLimit{2};  // an elastic job without any worker: for its coordinator to ask for new ones
constexpr int kRespawnsEach = 10;  // of a worker that dies again and again; more help nobody

group::ElasticRules rules_for(const LaunchPlan& plan) {
  const RunOptions& o = plan.options;
  return {.job = {},
          .least = o.least,
          .most = o.most > 0 ? o.most : plan.ranks,
          .wanted = plan.ranks,
          .respawns = o.respawns < 0 ? kRespawnsEach * plan.ranks : o.respawns,
          .quorum = o.quorum,
          .holding = o.holding,
          .heartbeat = o.lost_after.count() / 3,
          .start_grace = o.start_timeout.count(),
          .wait_limit = o.wait_limit.count(),
          .settle_limit = o.settle_limit.count()};
}

MeetingPlan meeting_for(const LaunchPlan& plan) {
  MeetingPlan m{
      .job = plan.options.job, .ranks = plan.ranks, .start_timeout = plan.options.start_timeout, .master_port = plan.options.master_port};
  m.tls = plan.options.tls;
  if (plan.options.elastic()) m.elastic = rules_for(plan);
  m.supervised = plan.options.supervised;
  if (!plan.hosts.empty()) m.listen = {listening_host(plan.options.interface), 0};
  if (!plan.node) return m;
  const NodePlan& node = *plan.node;
  m.job = node.job;
  m.ranks = plan.ranks * node.nodes;
  m.master_port = node.master_port;
  m.secret = net::Secret::from_file(node.secret_file);
  const net::Address coordinator{node.master_addr, static_cast<std::uint16_t>(node.master_port + 1)};
  m.listen = {listening_host(plan.options.interface), coordinator.port};
  if (node.node != 0) m.elsewhere = coordinator.text();
  return m;
}

class Launcher {
 public:
  Launcher(LaunchPlan plan, Signals& signals)
      : plan_(std::move(plan)),
        signals_(signals),
        screen_(style_for(plan_.options)),
        output_(plan_.options, screen_),
        meeting_(meeting_for(plan_)),
        job_ends_(Deadline::in(plan_.options.timeout)) {}
  int run();

 private:
  void start_ranks();
  void start_here();
  void start_agents();
  RankSetting common_setting() const;
  sigset_t rank_mask() const;
  void turn();
  void lose_front();
  void take_signals();
  void take_signal(int number);
  void note_ends();
  void note_elastic_end(const Ranks::Ended& ended);
  void note_lost_with_host(const Ranks::Ended& ended, const group::Process& process);
  group::Process process_of(int worker) const;
  void start_wanted();
  void keep_coordinator();
  group::Workforce workforce() const;
  int orphan_signal() const { return plan_.options.saves_when_orphaned() ? SIGTERM : SIGKILL; }
  void start_near();
  void start_far();
  void look_for_hosts();
  bool goes_on() const;
  bool ended_badly() const;
  bool fails_afterwards(const Ranks::Ended& ended) const;
  int elastic_verdict();
  void fail(int rank, int status);
  void find_cause();
  void fail(Ranks::Trouble trouble);
  void stop(int number, Seconds grace);
  void look_at_clock();
  void end_late_ones();
  void write_screen();
  void write_sink(int stream);
  void wind_up();
  void flush_screen();
  int verdict();
  void say(const std::string& text) { screen_.say("cohort run: " + text); }
  void mention(const std::string& text) {
    if (plan_.options.verbose) say(text);
  }
  bool sink_full(int stream) { return screen_.pending(stream).size() > kFullSink; }
  Seconds age() const { return Clock::now() - began_; }

  LaunchPlan plan_;
  Signals& signals_;
  Screen screen_;
  Output output_;
  std::unique_ptr<Ranks> ranks_;
  LocalRanks* workers_ = nullptr;  // ranks_, where more may be started ..
  RemoteRanks* remote_ = nullptr;  // .. likewise, on other hosts
  std::optional<Discovery> discovery_;
  std::vector<std::vector<int>> bindings_;
  int more_ = 0;                          // workers that were asked for by a signal
  int owed_ = 0;                          // workers that are wanted and not started yet: no host has had room
  int said_owed_ = 0;                     // .. as was said last
  Deadline late_at_;                      // workers that have not ended by then hang
  int unfit_ = 0;                         // workers that came later and found the settings wrong
  std::optional<Ranks::Ended> last_end_;  // of a worker that was not let go
  std::optional<Ranks::Ended> too_late_;  // the first that failed when the job had been trained to its end
  bool left_badly_ = false;               // a worker, after the user had stopped the job
  Deadline empty_until_;                  // without any worker the launcher waits so long for the coordinator's wish
  Meeting meeting_;
  const Clock::time_point began_ = Clock::now();
  Deadline job_ends_;
  Deadline kill_at_;  // never: nobody is being stopped
  Deadline stop_at_;  // never: no rank has failed, or the others were asked to end
  std::optional<FirstFailure> first_;
  std::vector<FirstFailure> failures_;     // that one and those that failed before the others were asked to end
  std::optional<Ranks::Trouble> trouble_;  // of a host; it or a rank's failure was first, not both
  int stopped_by_ = 0;                     // a signal of the user's
  bool timed_out_ = false;
  bool forsaken_ = false;  // there is no coordinator, and will be none
  bool killed_ = false;
  bool front_gone_ = false;
  bool reader_gone_ = false;  // nobody reads our stdout any more
};

int Launcher::run() {
  try {
    start_ranks();
  } catch (const NoProgram&) {
    kill_descendants(Deadline::in(kEndLimit));
    throw;
  }
  while (goes_on() && !front_gone_) turn();
  front_gone_ = front_gone_ || !plan_.front;
  wind_up();
  return verdict();
}

void Launcher::start_ranks() {
  plan_.hosts.empty() ? start_here() : start_agents();
  if (plan_.input > 2 && plan_.hosts.empty()) close(plan_.input);
  meeting_.open();  // after the last fork: from here on there is a second thread
  if (plan_.options.supervised) mention(fmt::format("the coordinator is process {}", meeting_.coordinator()));
}

RankSetting Launcher::common_setting() const {
  RankSetting s{.size = plan_.ranks,
                .job = meeting_.job(),
                .rendezvous = meeting_.address(),
                .secret_file = meeting_.secret_file(),
                .master_port = meeting_.master_port(),
                .role = plan_.options.role,
                .start_timeout = plan_.options.start_timeout.count(),
                .threads = plan_.options.threads > 0 ? plan_.options.threads : plan_threads(plan_.host, plan_.ranks),
                .threads_given = plan_.options.threads > 0,
                .log_level = plan_.options.log_level,
                .streams = plan_.options.streams};
  if (plan_.options.elastic()) s.elastic = exact_seconds(plan_.options.lost_after / 3);
  s.shards = plan_.options.elastic() && plan_.options.holding != group::Holding::whole;
  s.interface = plan_.options.interface;
  s.tls = plan_.options.tls;
  if (!plan_.node) return s;
  s.size = plan_.ranks * plan_.node->nodes;
  s.ranks_per_host.assign(static_cast<std::size_t>(plan_.node->nodes), plan_.ranks);
  s.host = plan_.node->node;
  s.rank = s.first = plan_.node->node * plan_.ranks;
  s.host_name = fmt::format("node-{}", plan_.node->node);
  const net::Address coordinator{plan_.node->master_addr, static_cast<std::uint16_t>(plan_.node->master_port + 1)};
  s.rendezvous = coordinator.text();
  // Many a system gives its own name a loopback address: ranks that met there would tell the other nodes to look for them on loopback.
  if (plan_.node->node == 0 && net::SocketAddress::of(coordinator).address().is_loopback())
    s.rendezvous = reachable_addresses(plan_.options.interface, coordinator.port).front();
  s.master_addr = plan_.node->master_addr;
  return s;
}

void Launcher::start_here() {
  const auto bindings = plan_binding(plan_.host, plan_.options.bind, plan_.ranks);
  RankSetting setting = common_setting();
  mention(fmt::format("job {}: {} rank{} of {}; they meet at {}; MASTER_PORT {}; {} thread{} each (OMP_NUM_THREADS), {} cores",
                      meeting_.job(), setting.size, setting.size == 1 ? "" : "s", plan_.program.path, meeting_.address(),
                      meeting_.master_port(), setting.threads, setting.threads == 1 ? "" : "s", usable_cores(plan_.host)));
  std::vector<ChildPlan> children;
  const sigset_t mask = rank_mask();
  for (int i = 0; i < plan_.ranks; ++i, ++setting.rank)
    children.push_back({.program = &plan_.program,
                        .environment = spelled_out(rank_environment(plan_.environment, setting)),
                        .cpus = bindings[static_cast<std::size_t>(i)],
                        .input = setting.rank == 0 ? plan_.input : -1,
                        .signal_mask = mask,
                        .orphan_signal = orphan_signal()});
  auto ranks = std::make_unique<LocalRanks>(output_);
  if (plan_.options.elastic()) ranks->spare_their_children();
  output_.open_files(setting.first, plan_.ranks);
  ranks->start(setting.first, children);
  workers_ = ranks.get();
  bindings_ = bindings;
  ranks_ = std::move(ranks);
  for (int r = 0; r < plan_.ranks; ++r)
    mention(fmt::format("rank {} is process {}, cores {}", setting.first + r, (*ranks_)[setting.first + r].pid,
                        list_cpus(bindings[static_cast<std::size_t>(r)])));
}

sigset_t Launcher::rank_mask() const {
  sigset_t mask = signals_.mask_before();
  if (plan_.options.quit_asks) sigaddset(&mask, SIGQUIT);  // one that comes while a rank still starts waits until it can be answered
  for (const int notice : {SIGTERM, SIGUSR1})
    if (plan_.options.notices) sigaddset(&mask, notice);
  return mask;
}

void Launcher::start_agents() {
  mention(fmt::format("job {}: {} ranks of {} on {} host{}; they meet at port {}", meeting_.job(), plan_.ranks, plan_.program.path,
                      plan_.hosts.size(), plan_.hosts.size() == 1 ? "" : "s", meeting_.port()));
  const bool elastic = plan_.options.elastic();
  RemotePlan remote{.hosts = plan_.hosts,
                    .shell = [this](const std::string& host) { return agent_words(plan_.options, plan_.environment, host); },
                    .call = {.job = meeting_.job(),
                             .secret = meeting_.secret(),
                             .addresses = reachable_addresses(plan_.options.interface, meeting_.port()),
                             .interface = plan_.options.interface,
                             .start_timeout = plan_.options.start_timeout.count(),
                             .master_port = plan_.options.master_port},
                    .start = {.setting = common_setting(),
                              .hosts = {},
                              .path = plan_.program.path,
                              .folder = std::filesystem::current_path().string(),
                              .argv = plan_.program.argv,
                              .environment = travelling(plan_.environment),
                              .bind = plan_.options.bind,
                              .quit_asks = plan_.options.quit_asks,
                              .notices = plan_.options.notices,
                              .saves = plan_.options.saves_when_orphaned()},
                    .input = plan_.input,
                    .reads_input = plan_.options.input == Stdin::first_rank && !elastic,
                    .environment = plan_.environment,
                    .signal_mask = signals_.mask_before(),
                    .elastic = elastic,
                    .pool = plan_.pool,
                    .cool_down = plan_.options.host_cool_down,
                    .leave_grace = plan_.options.stop_grace,
                    .other_ended =
                        [this](pid_t pid, int status) {
                          if (discovery_) discovery_->ended(pid, status);
                          meeting_.child_ended(pid, status);
                        }};
  const int placed = plan_.hosts.back().first + plan_.hosts.back().ranks;
  owed_ = plan_.ranks - placed;
  if (elastic && !plan_.options.discovery.empty())
    discovery_.emplace(DiscoveryPlan{.command = plan_.options.discovery,
                                     .every = plan_.options.discovery_interval,
                                     .slots_per_host = plan_.options.slots_per_host,
                                     .known = plan_.pool,
                                     .environment = plan_.environment,
                                     .signal_mask = signals_.mask_before()});
  auto ranks = std::make_unique<RemoteRanks>(output_);
  output_.open_files(0, placed);
  ranks->start(std::move(remote));
  if (elastic) remote_ = ranks.get();
  ranks_ = std::move(ranks);
}

// One round: wait for anything, then look at everything.
void Launcher::turn() {
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}, {plan_.front.get(), POLLIN, 0}, {meeting_.lines_fd(), POLLIN, 0}};
  for (int stream = 1; stream <= 2; ++stream)
    if (!screen_.pending(stream).empty()) fds.push_back({stream, POLLOUT, 0});
  const bool take_stdout = !sink_full(1), take_stderr = !sink_full(2);
  ranks_->add_polls(fds, take_stdout, take_stderr);
  Deadline next = screen_.next_idle().sooner(kill_at_).sooner(stop_at_).sooner(late_at_).sooner(job_ends_).sooner(ranks_->next_look());
  if (!ranks_->busy()) next = next.sooner(empty_until_);
  if (discovery_) {
    discovery_->add_polls(fds);
    next = next.sooner(discovery_->next_look());
  }
  poll(fds.data(), fds.size(), next.left_ms());

  if (fds[1].revents != 0) lose_front();
  for (const auto& line : meeting_.take_lines()) say(line);
  ranks_->move(Clock::now(), take_stdout, take_stderr);
  for (const auto& line : ranks_->take_news()) mention(line);
  for (const auto& line : ranks_->take_notices()) say(line);
  take_signals();
  note_ends();
  if (discovery_) look_for_hosts();
  if (plan_.options.elastic()) start_wanted();
  if (plan_.options.supervised) keep_coordinator();
  screen_.show_idle(Clock::now());
  write_screen();
  look_at_clock();
}

// Nobody is left to run the job for. Workers that can save get a moment for it.
void Launcher::lose_front() {
  plan_.front.reset();
  front_gone_ = !plan_.options.saves_when_orphaned();
  if (front_gone_) return;
  stopped_by_ = SIGTERM;
  stop(SIGTERM, kSaveLimit);
}

void Launcher::take_signals() {
  for (const int number : signals_.take()) take_signal(number);
}

void Launcher::take_signal(int number) {
  if (number == SIGCHLD) return;                          // note_ends() looks in every round
  if (number == SIGTSTP) return ranks_->signal(SIGSTOP);  // their groups are not the terminal's, so the terminal could not stop them
  if (number == SIGUSR2 && plan_.options.elastic()) {
    if (unfit_ < kMostUnfit || owed_ == 0) ++more_;  // else those who were asked for are still to come
    unfit_ = 0;
    return;
  }
  if (number == SIGCONT || number == SIGUSR1 || number == SIGUSR2) return ranks_->signal(number);
  if (number == SIGQUIT && plan_.options.quit_asks) return ranks_->signal(number);
  const bool again = stopped_by_ != 0 && number == SIGINT;
  if (stopped_by_ == 0) stopped_by_ = number;
  if (again) return stop(SIGKILL, Seconds{0});
  ranks_->signal(SIGCONT);
  stop(number, plan_.options.stop_grace);
}

// Ranks that ended in the same moment: one that a signal killed is the likelier cause, since the others may have failed over its loss.
void Launcher::note_ends() {
  if (auto trouble = ranks_->take_trouble(); trouble && !trouble_) fail(std::move(*trouble));
  auto ended = ranks_->take_ends();
  for (const auto& other : ranks_->take_others()) meeting_.child_ended(other.pid, other.status);
  std::stable_sort(ended.begin(), ended.end(), [](const auto& a, const auto& b) { return WIFSIGNALED(a.status) > WIFSIGNALED(b.status); });
  for (const auto& e : ended) {
    if (plan_.options.elastic()) {
      note_elastic_end(e);
      continue;
    }
    meeting_.rank_ended(e.rank, e.how);
    mention(fmt::format("rank {} ended: {}", e.rank, e.how));
    if (e.status != 0) fail(e.rank, e.status);
  }
}

// The job goes on without it, unless it is one of the first and has told that the settings are wrong: they are for all of them.
void Launcher::note_elastic_end(const Ranks::Ended& e) {
  const group::Process process = process_of(e.rank);
  if (!e.seen) return note_lost_with_host(e, process);
  const bool unasked = e.status != 0 && !meeting_.let_go(process) && stopped_by_ == 0;
  const std::string where = (*ranks_)[e.rank].host.empty() ? "" : fmt::format(" on host {}", process.host);
  const std::string words = fmt::format("worker {} (process {}{}) ended: {}", e.rank, process.pid, where, e.how);
  const bool afterwards = fails_afterwards(e);
  unasked || afterwards ? say(words) : mention(words);
  if (afterwards && !too_late_) too_late_ = e;
  const bool unfit = exit_code_of(e.status) == kExitUsage && plan_.options.usage_is_said;
  if (unfit && e.rank < plan_.ranks) return fail(e.rank, e.status);
  if (unfit && ++unfit_ == kMostUnfit)
    say("the settings are no longer what the others train with: no more workers are started; SIGUSR2 asks for one when they are");
  if (unasked) last_end_ = e;
  if (stopped_by_ != 0 && e.status != 0) left_badly_ = true;
  if (e.status == 0 && plan_.options.notices && meeting_.ending() && late_at_.never()) late_at_ = Deadline::in(kLateLimit);
  meeting_.process_ended(process, e.how);
  if (ranks_->running() == 0) empty_until_ = Deadline::in(kEmptyLimit);
}

// What a program does after training is its own, and nobody is started again for it. A worker of `cohort train` has saved by then.
bool Launcher::fails_afterwards(const Ranks::Ended& e) const {
  if (e.status == 0 || plan_.options.notices || stopped_by_ != 0 || timed_out_ || reader_gone_) return false;
  const auto ending = meeting_.ending();
  return ending && !ending->error;
}

// Nobody saw it end: the coordinator believes its connection only. One of the first, before the job began, is started again elsewhere.
void Launcher::note_lost_with_host(const Ranks::Ended& e, const group::Process& process) {
  if (ranks_->running() == 0) empty_until_ = Deadline::in(kEmptyLimit);
  if (stopped_by_ != 0 || trouble_) return;
  if (!last_end_) last_end_ = e;
  if (meeting_.formed()) return meeting_.process_vanished(process, e.how);
  ++owed_;
}

group::Process Launcher::process_of(int worker) const {
  const RankState& state = (*ranks_)[worker];
  return {state.pid, state.host.empty() ? group::kThisHost : state.host};
}

void Launcher::look_for_hosts() {
  discovery_->move();
  for (const auto& line : discovery_->take_notices()) say(line);
  const auto hosts = discovery_->take_hosts();
  if (!hosts || stopped_by_ != 0 || trouble_) return;
  const int came = remote_->set_pool(*hosts);
  const int most = plan_.options.most > 0 ? plan_.options.most : plan_.ranks;
  owed_ += std::clamp(most - remote_->running() - owed_, 0, came);
}

void Launcher::start_wanted() {
  owed_ = std::max(0, owed_ + meeting_.take_wanted() + std::exchange(more_, 0) - meeting_.take_rejoined());
  if (stopped_by_ != 0 || first_ || trouble_ || timed_out_ || meeting_.ending()) return void(owed_ = 0);
  if (unfit_ >= kMostUnfit) return;
  remote_ != nullptr ? start_far() : start_near();
}

void Launcher::start_far() {
  for (; owed_ > 0 && remote_->has_room(); --owed_) {
    output_.open_more();
    const int number = remote_->add();
    mention(fmt::format("worker {} is to run on host {}", number, (*ranks_)[number].host));
  }
  if (owed_ > said_owed_) say(fmt::format("{} more worker{} wanted, and no host has a free slot", owed_, owed_ == 1 ? " is" : "s are"));
  said_owed_ = owed_;
}

void Launcher::start_near() {
  for (; owed_ > 0; --owed_) {
    RankSetting setting = common_setting();
    setting.rank = ranks_->first() + ranks_->size();
    try {
      output_.open_more();
      const int number = workers_->add({.program = &plan_.program,
                                        .environment = spelled_out(rank_environment(plan_.environment, setting)),
                                        .cpus = bindings_[static_cast<std::size_t>(setting.rank) % bindings_.size()],
                                        .input = -1,
                                        .signal_mask = rank_mask(),
                                        .orphan_signal = orphan_signal()});
      mention(fmt::format("worker {} is process {}", number, (*ranks_)[number].pid));
    } catch (const std::exception& problem) {
      meeting_.spawn_failed(problem.what());
    }
  }
}

// After start_wanted(): whoever was asked for by the one that died is among those the next one hears of, started or owed.
void Launcher::keep_coordinator() {
  if (meeting_.coordinator_due() && (ranks_->busy() || !meeting_.ending())) {
    meeting_.open_again(workforce());
    for (const auto& line : meeting_.take_lines()) say(line);
    mention(fmt::format("the coordinator is process {}", meeting_.coordinator()));
  }
  const auto ending = meeting_.ending();
  if (ending && ending->error && meeting_.coordinator() < 0 && !std::exchange(forsaken_, true)) stop(SIGTERM, kSaveLimit);
}

group::Workforce Launcher::workforce() const {
  group::Workforce all{.running = {}, .ended = {}, .owed = owed_};
  for (int r = ranks_->first(); r < ranks_->first() + ranks_->size(); ++r) {
    if ((*ranks_)[r].vanished) continue;
    ((*ranks_)[r].running() ? all.running : all.ended).push_back(process_of(r));
  }
  const auto runs = [&](const auto& one) { return std::ranges::find(all.running, one) != all.running.end(); };
  std::erase_if(all.ended, runs);  // the system gave its number again
  return all;
}

// An elastic job may be without any worker for a moment, while its replacements are on their way.
bool Launcher::goes_on() const {
  if (ranks_->busy()) return true;
  if (!plan_.options.elastic() || stopped_by_ != 0 || first_ || trouble_ || timed_out_ || reader_gone_ || meeting_.ending()) return false;
  if (remote_ != nullptr && owed_ > 0 && unfit_ < kMostUnfit)
    return true;  // a host may come back; the coordinator knows when that takes too long
  return !empty_until_.passed();
}

void Launcher::fail(int rank, int status) {
  if (trouble_ || stopped_by_ != 0 || timed_out_ || reader_gone_) return;
  const RankState& lost = (*ranks_)[rank];
  if (first_) {
    const bool struck =
        WIFSIGNALED(status) && WTERMSIG(status) != SIGTERM && !killed_;  // by none of our signals, however late we hear of it
    if (!stop_at_.never() || struck) failures_.push_back({rank, lost.pid, status, age(), 0, {}, lost.host});
    return;
  }
  first_ = FirstFailure{rank, lost.pid, status, age(), ranks_->running(), {}, lost.host};
  failures_.push_back(*first_);
  if (plan_.options.rescue > Seconds{0}) return void(kill_at_ = kill_at_.sooner(Deadline::in(plan_.options.rescue)));
  stop_at_ = Deadline::in(kMoment);
}

// Over whose loss the first one failed, if that one failed by itself too: a rank that fails in its own code takes leave of its peers first,
// and they may be quicker to end than it is.
void Launcher::find_cause() {
  for (std::size_t looks = 0; looks < failures_.size(); ++looks) {
    const int other = blames(output_.last_words(first_->rank), first_->rank);
    const auto found = std::find_if(failures_.begin(), failures_.end(), [other](const FirstFailure& f) { return f.rank == other; });
    if (found == failures_.end()) return;
    const int stopped = first_->others_stopped;
    first_ = *found;
    first_->others_stopped = stopped;
  }
}

void Launcher::fail(Ranks::Trouble trouble) {
  if (first_ || stopped_by_ != 0 || timed_out_ || reader_gone_) return;
  trouble_ = std::move(trouble);
  stop(SIGTERM, plan_.options.grace);
}

void Launcher::stop(int number, Seconds grace) {
  ranks_->signal(number);
  kill_at_ = kill_at_.sooner(Deadline::in(grace));
}

// They may sit in a call that never returns; the others are done.
void Launcher::end_late_ones() {
  say(fmt::format("the job is over, and {} of its workers did not end within {}: they hang", ranks_->running(),
                  format_seconds(kLateLimit)));
  stop(SIGTERM, plan_.options.grace);
}

void Launcher::look_at_clock() {
  if (!timed_out_ && job_ends_.passed()) {
    timed_out_ = true;
    job_ends_ = Deadline{};
    stop(SIGTERM, plan_.options.grace);
  }
  if (late_at_.passed()) {
    late_at_ = Deadline{};
    if (ranks_->running() > 0 && kill_at_.never()) end_late_ones();
  }
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

void Launcher::write_screen() {
  write_sink(1);
  write_sink(2);
}

void Launcher::write_sink(int stream) {
  std::string& pending = screen_.pending(stream);
  std::size_t done = 0;
  while (done < pending.size()) {
    pollfd ready{stream, POLLOUT, 0};
    if (poll(&ready, 1, 0) <= 0) break;
    const ssize_t n = write(stream, pending.data() + done, std::min(kWriteBytes, pending.size() - done));
    if (n > 0) {
      done += static_cast<std::size_t>(n);
      continue;
    }
    if (errno == EAGAIN || errno == EINTR) break;
    done = pending.size();  // nobody reads it any more
    if (stream == 1 && errno == EPIPE && !reader_gone_) {
      reader_gone_ = true;  // `cohort run yes | head`: end as a program in that place would
      stop(SIGTERM, plan_.options.grace);
    }
  }
  pending.erase(0, done);
}

// No rank runs any more, or nobody is left to run them for: nothing may stay behind.
void Launcher::wind_up() {
  meeting_.close();
  if (front_gone_) ranks_->signal(SIGKILL);
  const auto left = end_descendants(Deadline::in(kEndLimit));
  ranks_->take_ends();
  if (!left.empty()) say(fmt::format("{} processes of this job could not be ended (process {} is one)", left.size(), left.front()));
  for (int i = 0; i < 64 && ranks_->anything_open() && !front_gone_; ++i) ranks_->move(Clock::now(), true, true);
  for (const auto& line : meeting_.take_lines()) say(line);
  screen_.finish_all();
}

void Launcher::flush_screen() {
  write_screen();
  while (!(screen_.pending(1).empty() && screen_.pending(2).empty()) && !front_gone_) {
    std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}, {plan_.front.get(), POLLIN, 0}};
    for (int stream = 1; stream <= 2; ++stream)
      if (!screen_.pending(stream).empty()) fds.push_back({stream, POLLOUT, 0});
    poll(fds.data(), fds.size(), 1000);
    if (fds[1].revents != 0) return;
    for (const int number : signals_.take())
      if (number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT) return;  // a reader that does not read
    write_screen();
  }
}

// Of those that were asked to end. Workers that an elastic job lost before are forgotten.
bool Launcher::ended_badly() const {
  if (plan_.options.elastic()) return left_badly_;
  for (int r = ranks_->first(); r < ranks_->first() + ranks_->size(); ++r)
    if ((*ranks_)[r].status != 0) return true;
  return false;
}

int Launcher::elastic_verdict() {
  const auto ending = meeting_.ending();
  if (ending && !ending->error && too_late_) {
    say(fmt::format("worker {} failed after the job had been trained to its end: {}", too_late_->rank, too_late_->how));
    return exit_code_of(too_late_->status);
  }
  if (ending && !ending->error) return mention(fmt::format("trained to the end after {}", format_seconds(age()))), 0;
  if (ending && ending->error->kind != Kind::peer_lost) return kExitFailure;  // the coordinator has said why
  const std::string how = last_end_ ? fmt::format("; the last one, worker {}, ended with {}", last_end_->rank, last_end_->how) : "";
  say(fmt::format("no worker is left after {}{}; the job goes on from its newest checkpoint when it is started again",
                  format_seconds(age()), how));
  const int code = last_end_ ? exit_code_of(last_end_->status) : kExitFailure;
  return code == 0 ? kExitFailure : code;
}

// The cause is the last thing on the screen.
int Launcher::verdict() {
  int code = 0;
  if (first_) {
    find_cause();
    first_->last_words = output_.last_words(first_->rank);
    code = exit_code_of(first_->status);
    if (code != kExitUsage || !plan_.options.usage_is_said) screen_.say(tell(*first_));
  } else if (trouble_) {
    code = trouble_->code;
    say(trouble_->what);
  } else if (plan_.options.elastic() && stopped_by_ == 0 && !timed_out_ && !reader_gone_) {
    code = elastic_verdict();
  } else if (timed_out_) {
    code = kExitTimeout;
    say(fmt::format("stopped: the job ran longer than --timeout {}", format_seconds(plan_.options.timeout)));
  } else if (reader_gone_) {
    code = kExitSignalBase + SIGPIPE;
  } else if (stopped_by_ != 0) {
    if (ended_badly()) code = kExitSignalBase + stopped_by_;
    if (!plan_.options.quiet) say(fmt::format("stopped by {} after {}", signal_name(stopped_by_), format_seconds(age())));
  } else {
    mention(fmt::format("all {} ranks ended well after {}", ranks_->size(), format_seconds(age())));
  }
  flush_screen();
  return front_gone_ ? kExitFailure : code;
}

}  // namespace

int launch(LaunchPlan plan, Signals& signals) { return Launcher(std::move(plan), signals).run(); }

}  // namespace cohort::cli
