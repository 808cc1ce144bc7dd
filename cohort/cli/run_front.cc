#include "cohort/cli/run_front.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>

#include "cohort/base/error.h"
#include "cohort/cli/cli.h"
#include "cohort/cli/run_report.h"
#include "cohort/cli/run_tree.h"

namespace cohort::cli {
namespace {

constexpr Seconds kEndLimit{1.5};
constexpr Seconds kSaveLimit{8.5};  // for workers that save when the launcher is lost, before they are ended with all else

struct Pipe {
  Fd read, write;
};
Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_system("pipe between front and launcher");
  return {Fd{ends[0]}, Fd{ends[1]}};
}

// A rank's group is not the terminal's foreground group, so it may not read the terminal: we read for rank 0.
class Relay {
 public:
  explicit Relay(bool wanted) {
    if (wanted) pipe_ = make_pipe();
  }
  int reader() const { return pipe_.read.get(); }
  void keep_writer() { pipe_.read.reset(); }
  int fd() const { return pipe_.write ? 0 : -1; }
  void move() {
    std::array<char, 4096> buffer;
    const ssize_t n = read(0, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) return;
    if (n <= 0 || write(pipe_.write.get(), buffer.data(), static_cast<std::size_t>(n)) != n)
      pipe_.write.reset();  // its end, or nobody listens
  }

 private:
  Pipe pipe_;
};

[[noreturn]] void work_behind(std::string_view name, const Work& work, Fd front, Signals& signals) {
  int code = kExitFailure;
  try {
    setpgid(0, 0);  // the terminal's signals reach the front only, which forwards them once
    become_subreaper();
    code = work(std::move(front), signals);
  } catch (const NoProgram& e) {
    fmt::print(stderr, "{}: {}\n", name, e.what());
    code = e.exit_code;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", name, e.what());
  }
  std::fflush(nullptr);
  _exit(code);
}

void forward(pid_t launcher, int number) {
  kill(launcher, number);
  if (number == SIGTSTP) raise(SIGSTOP);
}

// A launcher that does not act on two interrupts is stuck itself; its end is the end of the job.
constexpr int kPatience = 3;

// Until the launcher has ended; returns how.
int watch(pid_t launcher, Signals& signals, Relay& input) {
  int interrupts = 0;
  while (true) {
    std::array<pollfd, 2> fds{{{signals.fd(), POLLIN, 0}, {input.fd(), POLLIN, 0}}};
    poll(fds.data(), fds.size(), -1);
    if (fds[1].revents != 0) input.move();
    for (const int number : signals.take()) {
      if (number != SIGCHLD) {
        forward(launcher, number == SIGINT && ++interrupts >= kPatience ? SIGKILL : number);
        continue;
      }
      int status = 0;
      if (waitpid(launcher, &status, WNOHANG) == launcher) return status;
    }
  }
}

// Until no process of the job is left, the limit passes, or somebody does not want to wait.
void let_them_save(Signals& signals, Deadline limit) {
  constexpr int kLookMs = 20;
  while (!limit.passed()) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
    if (descendants(getpid()).empty()) return;
    pollfd asked{signals.fd(), POLLIN, 0};
    poll(&asked, 1, kLookMs);
    for (const int number : signals.take())
      if (number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT) return;
  }
}

int in_front(std::string_view name, const Work& work, Signals& signals, Relay& input, bool saves = false) {
  Pipe alive = make_pipe();
  std::fflush(nullptr);
  const pid_t worker = fork();
  if (worker < 0) throw_system("cannot start the launcher (fork)");
  if (worker == 0) {
    alive.write.reset();
    work_behind(name, work, std::move(alive.read), signals);
  }
  setpgid(worker, worker);
  alive.read.reset();
  input.keep_writer();
  const int status = watch(worker, signals, input);
  if (WIFSIGNALED(status) && saves) let_them_save(signals, Deadline::in(kSaveLimit));
  end_descendants(Deadline::in(kEndLimit));
  if (WIFSIGNALED(status))
    fmt::print(stderr, "{}: the launcher (process {}) was {}; {}every process of the job was ended\n", name, worker,
               describe_status(status), saves ? "its workers had a moment to save what they had, and " : "");
  return exit_code_of(status);
}

}  // namespace

int run_in_front(LaunchPlan plan) {
  become_subreaper();
  Signals signals;
  const bool saves = plan.options.saves_when_orphaned();
  const bool reads = plan.options.input == Stdin::first_rank;
  Relay input(reads && isatty(0) == 1);
  plan.input = reads ? (input.fd() >= 0 ? input.reader() : 0) : -1;
  const auto work = [&](Fd front, Signals& taken) {
    plan.front = std::move(front);
    return launch(std::move(plan), taken);
  };
  return in_front("cohort run", work, signals, input, saves);
}

int watch_over(std::string_view name, const Work& work) {
  become_subreaper();
  Signals signals;
  Relay nothing(false);
  return in_front(name, work, signals, nothing);
}

}  // namespace cohort::cli
