#include "cohort/bench/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/fd.h"
#include "cohort/base/text.h"
#include "cohort/launch/exit_codes.h"

namespace cohort::bench {
namespace {

constexpr std::size_t kErrKept = 64_KiB;
constexpr std::size_t kOutKept = 64_MiB;
constexpr auto kGrace = 3s;  // between asking a late child to end and ending it
constexpr int kTickMs = 50;  // how soon an end without a closed pipe is noticed

struct Pipe {
  Fd read, write;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw_system("pipe");
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
};

// In the child, between fork and exec: nothing that allocates.
[[noreturn]] void become(char* const* argv, int out, int err, int report, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(launch::kExitFailure);
  if (dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0) execvp(argv[0], argv);
  const int error = errno;
  [[maybe_unused]] const auto written = write(report, &error, sizeof error);
  _exit(launch::kExitNotFound);
}

// Appends what is there; false at the end of the stream.
bool drain(int fd, std::string& into, std::size_t most) {
  std::array<char, 16384> chunk;
  const auto n = read(fd, chunk.data(), chunk.size());
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  into.append(chunk.data(), static_cast<std::size_t>(n));
  if (into.size() > 2 * most) into.erase(0, into.size() - most);
  return n > 0;
}

bool ended(pid_t pid) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

int reap(pid_t pid) {
  kill(-pid, SIGKILL);  // the group: children the program forgot. The leader is not reaped yet, so the number is still ours
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : launch::kExitSignalBase + WTERMSIG(status);
}

struct Child {
  pid_t pid;
  Fd out, err;
};

Child start(const CommandLine& program) {
  auto words = program.argv;
  if (!program.env.empty()) {  // env(1) sets them: nothing may allocate between fork and exec
    for (const auto& [name, value] : program.env) words.insert(words.begin(), name + "=" + value);
    words.insert(words.begin(), "env");
  }
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  Pipe out, err, report;
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw_system("fork");
  if (pid == 0) become(argv.data(), out.write.get(), err.write.get(), report.write.get(), parent);
  setpgid(pid, pid);
  out.write.reset(), err.write.reset(), report.write.reset();
  int exec_error = 0;
  if (read(report.read.get(), &exec_error, sizeof exec_error) == sizeof exec_error) {
    reap(pid);
    throw_system(fmt::format("cannot start {}", program.argv.at(0)), exec_error);
  }
  fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  fcntl(err.read.get(), F_SETFL, O_NONBLOCK);
  return {pid, std::move(out.read), std::move(err.read)};
}

void drain_rest(int fd, std::string& into, std::size_t most) {
  for (std::size_t before = into.size() + 1; before != into.size();) before = into.size(), drain(fd, into, most);
}

}  // namespace

std::string_view Outcome::last_line() const {
  const auto lines = split(err, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line)
    if (!trim(*line).empty()) return trim(*line);
  return {};
}

Outcome run_process(const CommandLine& program, Deadline deadline) {
  const Child child = start(program);
  Outcome o;
  Deadline kill_at;
  bool out_open = true, err_open = true;
  while (!ended(child.pid)) {
    if (!o.late && deadline.passed()) {
      o.late = true;
      kill(-child.pid, SIGTERM);
      kill_at = Deadline::in(kGrace);
    }
    if (o.late && kill_at.passed()) kill(-child.pid, SIGKILL);
    pollfd fds[] = {{out_open ? child.out.get() : -1, POLLIN, 0}, {err_open ? child.err.get() : -1, POLLIN, 0}};
    poll(fds, 2, kTickMs);
    if (fds[0].revents != 0) out_open = drain(child.out.get(), o.out, kOutKept);
    if (fds[1].revents != 0) err_open = drain(child.err.get(), o.err, kErrKept);
  }
  o.status = reap(child.pid);
  drain_rest(child.out.get(), o.out, kOutKept);
  drain_rest(child.err.get(), o.err, kErrKept);
  return o;
}

}  // namespace cohort::bench
