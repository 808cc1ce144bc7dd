#include "cohort/launch/remote_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/launch/exit_codes.h"

namespace cohort::launch {
namespace {

constexpr Seconds kKillLimit{1.2};            // for an agent to kill its ranks and report it
constexpr Seconds kSettleLimit{5};            // for an agent to end, after its last message
constexpr Seconds kShellEndLimit{1};          // from the end of a stream to the end of the shell that carried it
constexpr std::size_t kMaxInput = 256 << 10;  // under way to rank 0

Program program_of(const std::vector<std::string>& words) { return {words[0], words}; }

std::string last_lines_text(const StderrTail& tail) {
  const auto lines = tail.lines();
  return lines.empty() ? "" : ": " + join(lines, "; ");
}

}  // namespace

void RemoteRanks::start(RemotePlan plan) {
  plan_ = std::move(plan);
  next_heartbeat_ = Deadline::in(kHeartbeatInterval);
  input_over_ = !plan_.reads_input;
  if (plan_.elastic) return start_elastic();
  ranks_.resize(static_cast<std::size_t>(plan_.start.setting.size));
  for (const group::HostShare& share : plan_.hosts) {
    hosts_.push_back({.name = share.name, .slots = share.ranks});
    for (int i = 0; i < share.ranks; ++i) {
      hosts_.back().ranks.push_back({share.first + i, i});
      state(share.first + i).host = share.name;
    }
    start_agent(hosts_.back(), hosts_.size() == 1);
  }
}

void RemoteRanks::start_agent(Host& host, bool master) {
  const Program program = program_of(plan_.shell(host.name));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_system("pipe to an agent");
  const Fd read_end{ends[0]};
  Fd write_end{ends[1]};
  host.shell = start_child({.program = &program,
                            .environment = environ_strings(plan_.environment),
                            .cpus = {},
                            .input = read_end.get(),
                            .signal_mask = plan_.signal_mask});
  host.shell_status.reset();
  host.channel = Channel(Channel::Side::launcher, std::move(host.shell.out), std::move(write_end));
  host.stage = Stage::starting;
  host.last_lines = {};
  host.missed_heartbeats = 0;
  host.end_by = {};
  host.ready_by = Deadline::in(Seconds{plan_.init.start_timeout});
  AgentInit init = plan_.init;
  init.first = host.ranks.empty() ? 0 : host.ranks.front().rank;
  init.master = master;
  host.channel.send(AgentFrame::init, encode(init));
}

void RemoteRanks::add_polls(std::vector<pollfd>& fds, bool with_stdout, bool with_stderr) const {
  for (const Host& h : hosts_) {
    if (with_stdout && with_stderr) fds.push_back({h.channel.in(), POLLIN, 0});
    fds.push_back({h.channel.out(), POLLOUT, 0});
    fds.push_back({h.shell.err.get(), POLLIN, 0});
  }
  const bool wants_input = !input_over_ && input_unread_ < kMaxInput && !hosts_.empty() && hosts_.front().stage == Stage::started;
  fds.push_back({wants_input ? plan_.input : -1, POLLIN, 0});
}

void RemoteRanks::move(Clock::time_point now, bool with_stdout, bool with_stderr) {
  reading_ = with_stdout && with_stderr;  // while our own reader is slow agents wait, and are not taken for lost
  for (Host& h : hosts_) {
    read_shell(h);
    if (reading_) receive(h, now);
    look_at_end(h);
  }
  forward_input();
  if (next_heartbeat_.passed()) send_heartbeats();
  if (kill_by_.passed())
    for (Host& h : hosts_)
      if (h.stage == Stage::started && h.channel.open()) give_up(h, kExitFailure, "its agent did not end when it was told to");
  if (plan_.elastic) end_leaving_hosts();
  if (running() > 0 || !reading_ || settle_by_.never()) settle_by_ = Deadline::in(kSettleLimit);
  for (Host& h : hosts_) h.channel.write_all();
}

void RemoteRanks::receive(Host& host, Clock::time_point now) {
  host.channel.move();
  try {
    while (const auto message = host.channel.next()) {
      take(host, *message, now);
      settle_by_ = Deadline::in(kSettleLimit);
    }
  } catch (const Failure& failure) {
    give_up(host, kExitFailure, failure.what());
  }
}

void RemoteRanks::take(Host& host, const AgentMessage& message, Clock::time_point now) {
  if (message.type == AgentFrame::ready) return take_ready(host, decode_ready(message.body));
  if (message.type == AgentFrame::output) return take_output(host, decode_output(message.body), now);
  if (message.type == AgentFrame::ended) return take_end(host, decode_ended(message.body));
  if (message.type == AgentFrame::input_ack) {
    input_unread_ -= std::min(input_unread_, static_cast<std::size_t>(decode_numbers(message.body, 1, 1)[0]));
  } else if (message.type == AgentFrame::closed) {
    const AgentOutput closed = decode_output(message.body);
    check_rank(host, closed.rank);
    sink_.finish(closed.rank, closed.stream);
  } else if (message.type == AgentFrame::started) {
    const std::size_t n = host.ranks.size();
    const auto pids = decode_numbers(message.body, n, n);
    for (std::size_t i = 0; i < n; ++i) state(host.ranks[i].rank).pid = pids[i];
    verbose_.push_back(fmt::format("host {}: {} from {} on, processes {}", host.name, n == 1 ? "rank" : "ranks", host.ranks.front().rank,
                                   fmt::join(pids, " ")));
  } else if (message.type == AgentFrame::worker_started) {
    take_worker_started(host, decode_numbers(message.body, 2, 2));
  } else if (message.type == AgentFrame::worker_failed) {
    take_worker_failed(host, decode_worker_failed(message.body));
  } else if (message.type == AgentFrame::leaving) {
    host.left_by_itself = true;
    if (!host.leaving) ask_to_leave(host);
  } else if (message.type == AgentFrame::error) {
    const AgentError error = decode_error(message.body);
    give_up(host, error.code, error.what);
  } else if (message.type != AgentFrame::heartbeat) {
    throw_failure(Kind::corrupt, "its agent sent a frame of type {}", static_cast<int>(message.type));
  }
}

void RemoteRanks::check_rank(const Host& host, int rank) const {
  if (std::none_of(host.ranks.begin(), host.ranks.end(), [&](const PlacedRank& p) { return p.rank == rank; }))
    throw_failure(Kind::corrupt, "its agent sent a message about rank {}, which is not there", rank);
}

void RemoteRanks::take_ready(Host& host, AgentReady ready) {
  if (host.stage != Stage::starting) throw_failure(Kind::corrupt, "its agent is ready twice");
  host.ready = std::move(ready);
  host.stage = Stage::ready;
  verbose_.push_back(fmt::format("host {} ({}, {} cores) reaches us at {}; its ranks are reached at {}", host.name, host.ready.host,
                                 host.ready.cores, host.ready.rendezvous, host.ready.address));
  if (plan_.elastic) return start_workers(host);
  if (std::all_of(hosts_.begin(), hosts_.end(), [](const Host& h) { return h.stage == Stage::ready; })) start_all();
}

void RemoteRanks::start_all() {
  AgentStart order = plan_.start;
  order.hosts = plan_.hosts;
  order.setting.master_addr = hosts_.front().ready.address;
  order.setting.master_port = hosts_.front().ready.master_port;
  for (std::size_t h = 0; h < hosts_.size(); ++h) {
    order.host = static_cast<int>(h);
    order.input = h == 0 && plan_.reads_input;
    hosts_[h].channel.send(AgentFrame::start, encode(order));
    hosts_[h].stage = Stage::started;
  }
}

void RemoteRanks::take_output(const Host& host, const AgentOutput& output, Clock::time_point now) {
  check_rank(host, output.rank);
  sink_.write(output.rank, output.stream, output.bytes, now);
}

void RemoteRanks::take_end(const Host& host, const AgentEnded& ended) {
  check_rank(host, ended.rank);
  RankState& rank = state(ended.rank);
  if (rank.status) return;
  rank.status = ended.status;
  rank.how = describe_end(ended.status, ended.for_memory);
  ends_.push_back({ended.rank, ended.status, rank.how, true, ended.for_memory});
}

// What ssh itself has to say comes on its stderr.
void RemoteRanks::read_shell(Host& host) {
  std::array<char, 4096> buffer;
  while (host.shell.err) {
    const ssize_t n = read(host.shell.err.get(), buffer.data(), buffer.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return host.shell.err.reset();
    host.last_lines.add({buffer.data(), static_cast<std::size_t>(n)});
  }
}

// The stream has ended: with all of the host's ranks that is how it should be.
void RemoteRanks::look_at_end(Host& host) {
  if (host.stage == Stage::over || host.channel.open()) return;
  if (host.end_by.never()) host.end_by = Deadline::in(kShellEndLimit);
  if ((!host.shell_status || host.shell.err) && !host.end_by.passed()) return;
  const bool left = plan_.elastic ? host.leaving : true;  // an agent of an elastic job stays when its workers have ended
  if (left && used_slots(host) == 0) return void(host.stage = Stage::over);
  const std::string how = host.shell_status ? describe_status(*host.shell_status) : "end of its stream";
  const std::string login_output = host.channel.login_output();
  if (!host.channel.banner_seen())
    return give_up(host, kExitFailure,
                   fmt::format("its remote shell ended ({}) before an agent answered{}{}", how, last_lines_text(host.last_lines),
                               login_output.empty() ? "" : fmt::format(" (it said: {})", login_output)));
  give_up(host, kExitFailure, fmt::format("its agent is gone ({}){}", how, last_lines_text(host.last_lines)));
}

void RemoteRanks::give_up(Host& host, int code, const std::string& what) {
  if (host.stage == Stage::over) return;
  const bool began = host.stage == Stage::started;
  host.stage = Stage::over;
  host.channel.close();
  if (!host.shell_status) kill(-host.shell.pid, SIGKILL);
  if (plan_.elastic)
    on_host_lost(host, fmt::format("{}: {}", began ? "is lost" : "cannot take part", what));
  else if (!host_failure_)
    host_failure_ = HostFailure{code, fmt::format("host '{}' {}: {}", host.name, began ? "failed" : "cannot take part", what)};
  mark_ended(host, W_EXITCODE(0, SIGKILL), fmt::format("its host '{}' is lost", host.name));
}

void RemoteRanks::mark_ended(const Host& host, int status, const std::string& how) {
  for (const PlacedRank& placed : host.ranks) {
    RankState& rank = state(placed.rank);
    if (!rank.running()) continue;
    rank.status = status;
    rank.lost_with_host = true;
    ends_.push_back({placed.rank, status, how, false});
  }
}

// Every kHeartbeatInterval: sends heartbeats, and counts those that are missing.
void RemoteRanks::send_heartbeats() {
  next_heartbeat_ = Deadline::in(kHeartbeatInterval);
  for (Host& h : hosts_) {
    if (h.stage == Stage::over) continue;
    h.channel.send(AgentFrame::heartbeat);
    h.missed_heartbeats = h.channel.take_received() || !reading_ || h.stage == Stage::starting ? 0 : h.missed_heartbeats + 1;
    if (h.missed_heartbeats > kMaxMissedHeartbeats)
      give_up(h, kExitFailure, fmt::format("no heartbeat of its agent for {}", format_seconds(kHeartbeatInterval * kMaxMissedHeartbeats)));
    else if (h.stage == Stage::starting && h.ready_by.passed())
      give_up(h, kExitTimeout,
              fmt::format("its agent has not answered within {} (--start-timeout){}", format_seconds(Seconds{plan_.init.start_timeout}),
                          last_lines_text(h.last_lines)));
  }
}

void RemoteRanks::forward_input() {
  if (input_over_ || hosts_.empty() || hosts_.front().stage != Stage::started || input_unread_ >= kMaxInput) return;
  pollfd ready{plan_.input, POLLIN, 0};
  if (plan_.input >= 0 && poll(&ready, 1, 0) <= 0) return;
  std::array<char, 16 << 10> buffer;
  const ssize_t n = plan_.input < 0 ? 0 : read(plan_.input, buffer.data(), buffer.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  input_over_ = n <= 0;
  const std::size_t bytes = n > 0 ? static_cast<std::size_t>(n) : 0;
  input_unread_ += bytes;
  hosts_.front().channel.send(AgentFrame::input, std::as_bytes(std::span(buffer.data(), bytes)));
}

std::vector<Ranks::Ended> RemoteRanks::take_ends() {
  int status = 0;
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG))
    if (const auto host = std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& h) { return h.shell.pid == pid && !h.shell_status; });
        host != hosts_.end())
      host->shell_status = status;
    else if (plan_.other_ended)
      plan_.other_ended(pid, status);
  return std::exchange(ends_, {});
}

std::optional<Ranks::HostFailure> RemoteRanks::take_host_failure() { return std::exchange(host_failure_, std::nullopt); }

std::vector<std::string> RemoteRanks::take_verbose() { return std::exchange(verbose_, {}); }

// A host that has not started yet has nothing to signal: whatever ends the job ends the attempt.
void RemoteRanks::signal(int number) {
  const bool ends = number != SIGCONT && number != SIGSTOP && number != SIGUSR1 && number != SIGUSR2;
  if (number == SIGKILL) kill_by_ = kill_by_.sooner(Deadline::in(kKillLimit));
  for (Host& h : hosts_) {
    if (h.stage == Stage::over) continue;
    if (h.stage == Stage::started) {
      h.channel.send(AgentFrame::signal, encode(std::vector<int>{number}));
      h.channel.write_all();
    } else if (ends) {
      h.stage = Stage::over;
      h.channel.close();
      kill(-h.shell.pid, SIGKILL);
      mark_ended(h, W_EXITCODE(0, number), "it was not started");
    }
  }
}

bool RemoteRanks::busy() const {
  if (running() > 0 || plan_.elastic) return running() > 0;
  return !settle_by_.passed() && std::any_of(hosts_.begin(), hosts_.end(), [](const Host& h) { return h.stage != Stage::over; });
}

Deadline RemoteRanks::next_look() const {
  Deadline next = next_heartbeat_.sooner(kill_by_);
  for (const Host& h : hosts_) {
    if (h.stage != Stage::over && !h.end_by.never() && h.shell_status && !h.shell.err) return Deadline::in(0s);  // all of its end is known
    for (const Deadline due : {h.stage == Stage::over ? h.back_off_until : h.end_by, h.leave_by})
      if (!due.passed()) next = next.sooner(due);
  }
  return next;
}

bool RemoteRanks::anything_open() const {
  return std::any_of(hosts_.begin(), hosts_.end(), [](const Host& h) { return h.channel.open(); });
}

}  // namespace cohort::launch
