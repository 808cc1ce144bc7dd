#include "cohort/launch/coordinator_process.h"

#include <dirent.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/launch/exit_codes.h"
#include "cohort/launch/failure_report.h"
#include "cohort/launch/job_resources.h"

namespace cohort::launch {
namespace {

// Messages between two processes of one program: a letter, a number, a text. A worker is its process and, first in the text, its host.
constexpr char kLine = 's', kWanted = 'w', kReleased = 'g', kRejoined = 'r', kFirstEpoch = 'b', kOver = 'o', kFailed = 'f', kBegun = 'm',
               kCommitted = 'c', kAlive = 'a';                                 // the coordinator
constexpr char kEnded = 'e', kVanished = 'v', kNotStarted = 'n', kPing = 'p';  // the supervisor
constexpr char kEndOfHost = '\n';
constexpr const char* kName = "coordinator";  // as ps shows it
constexpr int kPings = 10;                    // within its silence_limit() it is asked so many times whether it still works
constexpr int kHangMs = 1000;                 // a coordinator that reads no message for so long hangs
constexpr std::size_t kMaxText = 16 << 10;
constexpr std::size_t kHeader = 1 + sizeof(std::int64_t);

struct Message {
  char what = 0;
  std::int64_t number = 0;
  std::string text;
};

std::string encoded(char what, std::int64_t number, std::string_view text) {
  std::string bytes(kHeader, what);
  std::memcpy(bytes.data() + 1, &number, sizeof number);
  return bytes.append(text.substr(0, kMaxText));
}

std::string about(const elastic::Process& process, const std::string& how = "") { return process.host + kEndOfHost + how; }

elastic::Process process_of(const Message& m) { return {.pid = m.number, .host = m.text.substr(0, m.text.find(kEndOfHost))}; }
std::string how_of(const Message& m) { return m.text.substr(std::min(m.text.size(), m.text.find(kEndOfHost) + 1)); }

Begun begun_of(const Message& m) {
  const std::string text = how_of(m);
  const auto space = std::min(text.size(), text.find(' '));
  return {process_of(m), Epoch{static_cast<std::uint32_t>(std::atol(text.c_str()))}, Rank{std::atoi(text.c_str() + space)}};
}

bool post(int fd, const std::string& bytes, int flags) {
  ssize_t n = -1;
  do n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | flags);
  while (n < 0 && errno == EINTR);
  return n >= 0;
}

// None: nothing is there (without waiting), or the other side is gone.
std::optional<Message> receive_from(int fd, int flags) {
  std::array<char, kHeader + kMaxText> buffer;
  ssize_t n = -1;
  do n = recv(fd, buffer.data(), buffer.size(), flags);
  while (n < 0 && errno == EINTR);
  if (n < static_cast<ssize_t>(kHeader)) return std::nullopt;
  Message m{buffer[0], 0, {buffer.data() + kHeader, static_cast<std::size_t>(n) - kHeader}};
  std::memcpy(&m.number, buffer.data() + 1, sizeof m.number);
  return m;
}

// The coordinator must not hold the ranks' pipes, the foreground process's or the terminal open.
void close_all_but(std::initializer_list<int> kept) {
  std::vector<int> open;
  {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
    if (!folder) return;
    while (const dirent* entry = readdir(folder.get())) open.push_back(std::atoi(entry->d_name));
  }
  for (const int fd : open)
    if (fd > STDERR_FILENO && std::find(kept.begin(), kept.end(), fd) == kept.end()) close(fd);
}

// Until the supervisor closes the channel.
void coordinate(elastic::ElasticCoordinatorOptions how, net::Listener listener, int channel) {
  const auto send = [channel](char what, std::int64_t number, std::string_view text) { post(channel, encoded(what, number, text), 0); };
  const auto fail = [send](const Error& error) { send(kFailed, static_cast<std::int64_t>(error.kind), error.what); };
  how.say = [send](const std::string& text) { send(kLine, 0, text); };
  how.respawn = [send](int count) { send(kWanted, count, ""); };
  how.released = [send](const elastic::Process& process) { send(kReleased, process.pid, about(process)); };
  how.rejoined = [send](const elastic::Process& process) { send(kRejoined, process.pid, about(process)); };
  how.first_epoch = [send] { send(kFirstEpoch, 0, ""); };
  how.begun = [send](const elastic::Process& process, Epoch epoch, Rank rank) {
    send(kBegun, process.pid, about(process, fmt::format("{} {}", epoch.value, rank.value)));
  };
  how.first_commit = [send] { send(kCommitted, 0, ""); };
  how.alive = [send] { send(kAlive, 0, ""); };
  how.over = [send, fail](const std::optional<Error>& error) { error ? fail(*error) : send(kOver, 0, ""); };
  try {
    elastic::ElasticCoordinator coordinator(std::move(how), std::move(listener));
    while (const auto m = receive_from(channel, 0)) {
      if (m->what == kEnded) coordinator.process_ended(process_of(*m), how_of(*m));
      if (m->what == kVanished) coordinator.process_vanished(process_of(*m), how_of(*m));
      if (m->what == kNotStarted) coordinator.spawn_failed(m->text);
      if (m->what == kPing) coordinator.ping();
    }
  } catch (const Failure& failure) {  // its log, or its port: started again it would fail again
    send(kLine, 0, fmt::format("the coordinator cannot work: {}", failure.what()));
    fail(failure.error());
  }
}

}  // namespace

CoordinatorProcess::CoordinatorProcess(elastic::ElasticRules rules, const net::Secret& secret, net::Listener listener)
    : rules_(std::move(rules)), secret_(secret), listener_(std::move(listener)), log_(memory_file("cohort-decisions")) {}

CoordinatorProcess::~CoordinatorProcess() { close(); }

void CoordinatorProcess::close() {
  receive();  // its last lines
  closed_ = true;
  due_ = false;
  channel_.reset();
}

void CoordinatorProcess::start(elastic::Workforce workforce) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) throw_system("socket pair for the coordinator");
  Fd ours{ends[0]};
  const Fd its{ends[1]};
  const pid_t supervisor = getpid();
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ < 0) throw_system("cannot start the coordinator (fork)");
  if (pid_ == 0) {
    ours.reset();  // it also makes room for a look at the open descriptors, where the supervisor has none left
    be_coordinator(std::move(workforce), supervisor, its.get());
  }
  channel_ = std::move(ours);
  due_ = false;
  answered_ = true;
  asked_ = last_check_ = Clock::now();
  next_look_ = Deadline::in(silence_limit() / kPings);
}

// What escapes from here ends the process, as a crash: another one is started.
void CoordinatorProcess::be_coordinator(elastic::Workforce workforce, pid_t supervisor, int channel) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != supervisor) _exit(kExitSignalBase + SIGKILL);  // it died before PR_SET_PDEATHSIG
  prctl(PR_SET_NAME, kName);
  close_all_but({channel, listener_.fd.get(), log_.get()});
  elastic::ElasticCoordinatorOptions how{.rules = rules_, .secret = secret_, .log = {}, .say = {}, .respawn = {}};
  how.log_file = log_.get();
  how.silence_limit = std::max(rules_.wait_limit, kWorkersWait * silence_limit().count());
  how.workforce = std::move(workforce);
  try {
    coordinate(std::move(how), std::move(listener_), channel);
  } catch (const std::exception& problem) {  // no thread, no memory
    post(channel, encoded(kLine, 0, fmt::format("the coordinator fails: {}", problem.what())), 0);
    _exit(kExitFailure);
  }
  std::fflush(nullptr);
  _exit(0);
}

// One that has said how the job ended is still needed while workers are to be told. One that failed would fail again.
void CoordinatorProcess::child_ended(pid_t pid, int status) {
  if (pid != pid_) return;
  receive();  // its last lines
  channel_.reset();
  pid_ = -1;
  if (closed_ || (ending_ && ending_->error)) return;
  const auto now = Clock::now();
  const std::string how = describe_status(status);
  while (!deaths_.empty() && now - deaths_.front() > kRestartWindow) deaths_.pop_front();
  deaths_.push_back(now);
  const auto times = deaths_.size();
  if (times <= kMaxRestarts) {
    events_.lines.push_back(fmt::format("the coordinator (process {}) ended: {}; it is started again ({} of at most {} times within {})",
                                        pid, how, times, kMaxRestarts, format_seconds(kRestartWindow)));
    due_ = true;
    return;
  }
  const std::string why = fmt::format("the coordinator ended {} times within {}, the last time {}: it is given up, and the job with it",
                                      times, format_seconds(kRestartWindow), how);
  events_.lines.push_back(why);
  ending_ = elastic::ElasticCoordinator::Ending{Error{Kind::aborted, why, kNoRank}};
  listener_.fd.reset();  // workers that reconnect are refused
}

// A coordinator that does not read its messages hangs. The next one gets all of them.
void CoordinatorProcess::send(char what, std::int64_t number, const std::string& text) {
  const std::string message = encoded(what, number, text);
  if (pid_ <= 0 || post(channel_.get(), message, MSG_DONTWAIT) || errno != EAGAIN) return;
  pollfd writable{channel_.get(), POLLOUT, 0};
  if (poll(&writable, 1, kHangMs) <= 0 || !post(channel_.get(), message, MSG_DONTWAIT)) kill(pid_, SIGKILL);
}

// Time in which this process was itself suspended does not count: no answer could be seen in it.
void CoordinatorProcess::check_alive() {
  if (pid_ <= 0 || closed_ || !next_look_.passed()) return;
  receive();
  const auto now = Clock::now(), before = std::exchange(last_check_, now);
  const Seconds interval = silence_limit() / kPings;
  if (now - before > 2 * interval) asked_ += now - before;
  next_look_ = Deadline::in(interval);
  if (answered_) {
    answered_ = false;
    asked_ = now;
    return send(kPing, 0, "");
  }
  if (now - asked_ < silence_limit()) return;
  events_.lines.push_back(fmt::format("the coordinator (process {}) has not answered for {}: it is stopped, or hangs; it is killed", pid_,
                                      format_seconds(silence_limit())));
  kill(pid_, SIGKILL);
}

void CoordinatorProcess::process_ended(const elastic::Process& process, const std::string& how) {
  send(kEnded, process.pid, about(process, how));
}
void CoordinatorProcess::process_vanished(const elastic::Process& process, const std::string& how) {
  send(kVanished, process.pid, about(process, how));
}
void CoordinatorProcess::spawn_failed(const std::string& why) { send(kNotStarted, 0, why); }

void CoordinatorProcess::receive() {
  while (channel_) {
    const auto m = receive_from(channel_.get(), MSG_DONTWAIT);
    if (!m) return;
    answered_ = true;
    if (m->what == kLine) events_.lines.push_back(m->text);
    if (m->what == kWanted) events_.wanted += static_cast<int>(m->number);
    if (m->what == kRejoined) ++events_.rejoined;
    if (m->what == kReleased) events_.released.push_back(process_of(*m));
    if (m->what == kFirstEpoch) formed_ = true;
    if (m->what == kBegun) events_.begun.push_back(begun_of(*m));
    if (m->what == kCommitted) committed_ = true;
    if (m->what == kOver && !ending_) ending_ = elastic::ElasticCoordinator::Ending{};
    if (m->what == kFailed && !ending_)
      ending_ = elastic::ElasticCoordinator::Ending{Error{static_cast<Kind>(m->number), m->text, kNoRank}};
  }
}

CoordinatorProcess::Events CoordinatorProcess::take() {
  receive();
  return std::exchange(events_, {});
}

}  // namespace cohort::launch
