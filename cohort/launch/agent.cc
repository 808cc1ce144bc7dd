#include "cohort/launch/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/launch/agent_channel.h"
#include "cohort/launch/agent_messages.h"
#include "cohort/launch/agent_probe.h"
#include "cohort/launch/binding.h"
#include "cohort/launch/exit_codes.h"
#include "cohort/launch/failure_report.h"
#include "cohort/launch/job_resources.h"
#include "cohort/launch/process_tree.h"
#include "cohort/launch/ranks.h"
#include "cohort/net/socket/address.h"

namespace cohort::launch {
namespace {

constexpr Seconds kEndLimit{1};
constexpr Seconds kConnectLimit{1};
constexpr Seconds kSaveLimit{8};  // for workers whose launcher is lost

// Ours alone: whatever else in this process prints to stdout must not end up in the middle of a frame.
Channel take_streams() {
  Fd in{fcntl(0, F_DUPFD_CLOEXEC, 3)}, out{fcntl(1, F_DUPFD_CLOEXEC, 3)};
  const Fd nothing{open("/dev/null", O_RDONLY | O_CLOEXEC)};
  if (!in || !out || dup2(nothing.get(), 0) < 0 || dup2(2, 1) < 0) throw_system("the agent's standard input and output");
  return {Channel::Side::agent, std::move(in), std::move(out)};
}

std::string own_name() {
  std::array<char, 65> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

struct InputPipe {
  Fd read, write;
  std::string waiting;
  bool over = false;
};

class Agent : public RankSink {
 public:
  Agent(const group::Environment& environment, Fd foreground, Signals& signals)
      : environment_(environment), foreground_(std::move(foreground)), signals_(signals), channel_(take_streams()), ranks_(*this) {}
  int run();

  void write(int rank, int stream, std::string_view bytes, Clock::time_point) override {
    channel_.send(AgentFrame::output, encode(AgentOutput{number_of(rank), stream, std::string(bytes)}));
  }
  void finish(int rank, int stream) override { channel_.send(AgentFrame::closed, encode(AgentOutput{number_of(rank), stream, {}})); }

 private:
  void poll_once();
  void take(const AgentMessage& message);
  void connect(const AgentInit& init);
  void start(const AgentStart& order);
  void start_all(const AgentStart& order);
  void start_one(const AgentStartWorker& more);
  sigset_t mask_of(const AgentStart& order) const;
  RankSetting setting_of(const AgentStart& order) const;
  group::Environment variables_of(const AgentStart& order) const;
  void pass_signal(int number);
  void take_own_signals();
  void move_input();
  void send_heartbeat();
  void refuse(int code, const std::string& what);
  void shut_down();
  bool launcher_is_gone() const;
  void wait_for_saves();
  void flush();
  bool elastic() const { return order_ && order_->elastic(); }
  int number_of(int rank) const { return elastic() ? numbers_.at(static_cast<std::size_t>(rank)) : rank; }
  bool alone() const { return !channel_.open() || foreground_gone_; }

  const group::Environment& environment_;
  const Fd foreground_;
  Signals& signals_;
  Channel channel_;
  LocalRanks ranks_;
  std::optional<AgentInit> init_;
  LauncherAddress launcher_;
  std::optional<SecretFile> secret_;
  ReservedPort master_port_;
  std::optional<AgentStart> order_;
  std::vector<int> numbers_;  // elastic: what the job calls our ranks
  InputPipe input_;
  Deadline next_heartbeat_ = Deadline::in(kHeartbeatInterval);
  int missed_heartbeats_ = 0;
  bool started_ = false, stopped_ = false, refused_ = false, foreground_gone_ = false;
};

int Agent::run() {
  try {
    while (!alone() && !refused_ && (!started_ || elastic() || ranks_.running() > 0)) poll_once();
  } catch (const NoProgram& e) {
    refuse(e.exit_code, e.what());
  } catch (const std::exception& e) {
    refuse(kExitFailure, e.what());
  }
  shut_down();
  return refused_ || alone() ? kExitFailure : 0;
}

void Agent::poll_once() {
  const bool writable = channel_.unsent() < kFullChannel;
  std::vector<pollfd> fds{
      {signals_.fd(), POLLIN, 0}, {foreground_.get(), POLLIN, 0}, {channel_.in(), POLLIN, 0}, {channel_.out(), POLLOUT, 0}};
  fds.push_back({input_.waiting.empty() ? -1 : input_.write.get(), POLLOUT, 0});
  ranks_.add_polls(fds, writable, writable);
  poll(fds.data(), fds.size(), next_heartbeat_.left_ms());
  if (fds[1].revents != 0) foreground_gone_ = true;
  ranks_.move(Clock::now(), writable, writable);
  take_own_signals();
  channel_.move();
  while (const auto message = channel_.next()) take(*message);
  move_input();
  if (next_heartbeat_.passed()) send_heartbeat();
  channel_.move();
}

void Agent::take(const AgentMessage& message) {
  if (message.type == AgentFrame::init) return connect(decode_init(message.body));
  if (message.type == AgentFrame::start) return start(decode_start(message.body));
  if (message.type == AgentFrame::start_worker) return start_one(decode_start_worker(message.body));
  if (message.type == AgentFrame::signal) return pass_signal(decode_numbers(message.body, 1, 1)[0]);
  if (message.type == AgentFrame::input) {
    input_.over = message.body.empty();
    input_.waiting.append(reinterpret_cast<const char*>(message.body.data()), message.body.size());
  } else if (message.type != AgentFrame::heartbeat) {
    throw_failure(Kind::corrupt, "the launcher sent a frame of type {}", static_cast<int>(message.type));
  }
}

void Agent::connect(const AgentInit& init) {
  if (init_) throw_failure(Kind::corrupt, "the launcher sent the init frame twice");
  init_ = init;
  channel_.move();
  launcher_ = probe_launcher(init, channel_.in(), [this] {
    channel_.move();
    return !channel_.open();
  });
  if (launcher_.rendezvous.empty()) return;
  secret_.emplace(init.secret);
  if (init.master) master_port_ = ReservedPort(launcher_.address, init.master_port);
  channel_.send(AgentFrame::ready, encode(AgentReady{own_name(), launcher_.address, launcher_.rendezvous, master_port_.number(),
                                                     usable_cores(read_host_topology())}));
}

RankSetting Agent::setting_of(const AgentStart& order) const {
  RankSetting s = order.setting;
  const group::HostShare& here = order.hosts[static_cast<std::size_t>(order.host)];
  for (const auto& host : order.hosts) s.ranks_per_host.push_back(host.ranks);
  s.host = order.host;
  s.rank = s.first = here.first;
  s.host_name = here.name;
  s.rendezvous = launcher_.rendezvous;
  s.secret_file = secret_->path();
  if (!s.threads_given) s.threads = plan_threads(read_host_topology(), here.ranks);
  return s;
}

group::Environment Agent::variables_of(const AgentStart& order) const {
  group::Environment variables;
  for (const auto& [name, value] : environment_)
    if (is_host_local(name)) variables.emplace(name, value);
  for (const auto& [name, value] : order.environment) variables.emplace(name, value);
  variables.insert_or_assign("PWD", order.folder);
  return variables;
}

void Agent::start(const AgentStart& order) {
  if (!secret_ || started_) throw_failure(Kind::corrupt, "the launcher starts ranks out of turn");
  if (chdir(order.folder.c_str()) != 0)
    throw_failure(Kind::usage, "folder '{}': {}; start the job in one that every host has", order.folder, std::strerror(errno));
  order_ = order;
  order.elastic() ? ranks_.signal_leaders_only() : start_all(order);
  started_ = true;
}

void Agent::start_all(const AgentStart& order) {
  const Program program{order.path, order.argv};
  RankSetting setting = setting_of(order);
  const int first = setting.first, count = order.hosts[static_cast<std::size_t>(order.host)].ranks;
  const auto bindings = plan_binding(read_host_topology(), order.bind, count);
  if (order.input) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_system("pipe for the input of rank 0");
    input_.read.reset(ends[0]);
    input_.write.reset(ends[1]);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
  }
  const sigset_t mask = mask_of(order);
  const group::Environment variables = variables_of(order);
  std::vector<ChildPlan> plans;
  for (int i = 0; i < count; ++i, ++setting.rank)
    plans.push_back({.program = &program,
                     .environment = environ_strings(rank_environment(variables, setting)),
                     .cpus = bindings[static_cast<std::size_t>(i)],
                     .input = setting.rank == 0 ? input_.read.get() : -1,
                     .signal_mask = mask});
  ranks_.start(first, plans);
  input_.read.reset();
  std::vector<int> pids;
  for (int r = first; r < first + count; ++r) pids.push_back(ranks_[r].pid);
  channel_.send(AgentFrame::started, encode(pids));
}

// As the launcher does on its own host.
sigset_t Agent::mask_of(const AgentStart& order) const {
  sigset_t mask = signals_.mask_before();
  if (order.sigquit_reports) sigaddset(&mask, SIGQUIT);
  for (const int notice : {SIGTERM, SIGUSR1})
    if (order.preemptible) sigaddset(&mask, notice);
  return mask;
}

// A worker that cannot be started does not concern the others.
void Agent::start_one(const AgentStartWorker& more) {
  if (!elastic()) throw_failure(Kind::corrupt, "the launcher starts a worker out of turn");
  const int slots = order_->hosts[static_cast<std::size_t>(order_->host)].ranks;
  RankSetting setting = setting_of(*order_);
  setting.rank = more.number;
  setting.first = more.number - more.slot % slots;
  const Program program{order_->path, order_->argv};
  try {
    numbers_.push_back(more.number);
    const int rank =
        ranks_.add({.program = &program,
                    .environment = environ_strings(rank_environment(variables_of(*order_), setting)),
                    .cpus = plan_binding(read_host_topology(), order_->bind, slots)[static_cast<std::size_t>(more.slot % slots)],
                    .input = -1,
                    .signal_mask = mask_of(*order_)});
    channel_.send(AgentFrame::worker_started, encode(std::vector<int>{more.number, ranks_[rank].pid}));
  } catch (const std::exception& problem) {
    numbers_.pop_back();
    channel_.send(AgentFrame::worker_failed, encode(AgentWorkerFailed{more.number, problem.what()}));
  }
}

void Agent::pass_signal(int number) {
  if (number == SIGSTOP) stopped_ = true;
  if (number == SIGCONT) stopped_ = false;
  ranks_.signal(number);
}

void Agent::take_own_signals() {
  for (const int number : signals_.take()) {
    if (number == SIGCHLD) {
      for (const auto& e : ranks_.take_ends()) {
        ranks_.move(Clock::now(), true, true);  // its last lines go before its end
        channel_.send(AgentFrame::ended, encode(AgentEnded{number_of(e.rank), e.status, e.for_memory}));
      }
    } else if (elastic() && (number == SIGTERM || number == SIGUSR1)) {
      channel_.send(AgentFrame::leaving);
    } else if (number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT) {
      refuse(kExitSignalBase + number, fmt::format("its agent was ended by {}", signal_name(number)));
    }
  }
}

void Agent::move_input() {
  while (!input_.waiting.empty() && input_.write) {
    const ssize_t n = ::write(input_.write.get(), input_.waiting.data(), input_.waiting.size());
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0 && errno == EINTR) continue;
    const std::size_t gone = n > 0 ? static_cast<std::size_t>(n) : input_.waiting.size();  // nobody reads it: it counts as read
    channel_.send(AgentFrame::input_ack, encode(std::vector<int>{static_cast<int>(gone)}));
    input_.waiting.erase(0, gone);
  }
  if (input_.over && input_.waiting.empty()) input_.write.reset();
}

void Agent::send_heartbeat() {
  next_heartbeat_ = Deadline::in(kHeartbeatInterval);
  channel_.send(AgentFrame::heartbeat);
  missed_heartbeats_ = channel_.take_received() || stopped_ ? 0 : missed_heartbeats_ + 1;
  if (missed_heartbeats_ > kMaxMissedHeartbeats) refuse(kExitFailure, "no heartbeat of the launcher");
}

void Agent::refuse(int code, const std::string& what) {
  if (refused_) return;
  refused_ = true;
  channel_.send(AgentFrame::error, encode(AgentError{code, what}));
}

// Whether nobody listens there any more, which its host alone can say: by refusing the connection.
bool connection_refused(const net::SocketAddress& address, Deadline limit) {
  const Fd fd{::socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (::connect(fd.get(), address.get(), address.length) == 0) return false;
  if (errno != EINPROGRESS) return errno == ECONNREFUSED;
  pollfd answered{fd.get(), POLLOUT, 0};
  int problem = 0;
  socklen_t size = sizeof problem;
  return poll(&answered, 1, limit.left_ms()) > 0 && getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &problem, &size) == 0 &&
         problem == ECONNREFUSED;
}

// Its stream may end while it runs, and then it replaces our workers; one that cannot be reached may train on without us. One that was
// killed stops listening a moment after its streams have ended.
bool Agent::launcher_is_gone() const {
  const net::SocketAddress address = net::SocketAddress::of(net::Address::parse(launcher_.rendezvous));
  for (const Deadline limit = Deadline::in(kConnectLimit); !limit.passed(); std::this_thread::sleep_for(20ms))
    if (connection_refused(address, limit)) return true;
  return false;
}

// The launcher is gone, and these can save what they have: they get a moment, as they would on its own host.
void Agent::wait_for_saves() {
  ranks_.signal(SIGTERM);
  for (const Deadline limit = Deadline::in(kSaveLimit); ranks_.running() > 0 && !limit.passed();) {
    std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
    ranks_.add_polls(fds, true, true);
    poll(fds.data(), fds.size(), limit.left_ms());
    signals_.take();
    ranks_.take_ends();
    ranks_.move(Clock::now(), true, true);
  }
}

// Nothing of this host's part may stay behind; what the ranks wrote last still goes to the launcher.
void Agent::shut_down() {
  if (alone() && elastic() && order_->saves && launcher_is_gone()) wait_for_saves();
  if (ranks_.running() > 0) ranks_.signal(SIGKILL);
  if (alone() || refused_)
    kill_descendants(Deadline::in(kEndLimit));
  else
    end_descendants(Deadline::in(kEndLimit));
  for (int i = 0; i < 64 && ranks_.anything_open() && !alone(); ++i) ranks_.move(Clock::now(), true, true);
  flush();
}

// A launcher whose own reader is slow takes its time; only one that is silent is not waited for.
void Agent::flush() {
  channel_.move();
  missed_heartbeats_ = 0;
  while (channel_.unsent() > 0 && !alone() && missed_heartbeats_ < (refused_ ? 2 : kMaxMissedHeartbeats)) {
    std::array<pollfd, 3> fds{{{channel_.out(), POLLOUT, 0}, {channel_.in(), POLLIN, 0}, {foreground_.get(), POLLIN, 0}}};
    poll(fds.data(), fds.size(), next_heartbeat_.left_ms());
    if (fds[2].revents != 0) foreground_gone_ = true;
    channel_.move();
    while (channel_.next()) continue;
    if (!next_heartbeat_.passed()) continue;
    next_heartbeat_ = Deadline::in(kHeartbeatInterval);
    missed_heartbeats_ = channel_.take_received() ? 0 : missed_heartbeats_ + 1;
  }
}

}  // namespace

int run_agent(const group::Environment& environment, Fd foreground, Signals& signals) {
  return Agent(environment, std::move(foreground), signals).run();
}

}  // namespace cohort::launch
