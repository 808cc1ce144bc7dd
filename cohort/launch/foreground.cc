#include "cohort/launch/foreground.h"

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
#include "cohort/base/terminal_text.h"
#include "cohort/launch/exit_codes.h"
#include "cohort/launch/failure_report.h"
#include "cohort/launch/placement.h"
#include "cohort/launch/process_tree.h"

namespace cohort::launch {
namespace {

constexpr Seconds kEndLimit{1.5};
constexpr Seconds kSaveLimit{8.5};  // for workers that save when the launcher is lost, before they are ended with all else

struct Pipe {
  Fd read, write;
};
Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_system("pipe between the foreground process and the launcher");
  return {Fd{ends[0]}, Fd{ends[1]}};
}

// A rank's group is not the terminal's foreground group, so it may not read the terminal: we read for rank 0.
class InputRelay {
 public:
  explicit InputRelay(bool wanted) {
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
      pipe_.write.reset();  // its end, or nobody reads it
  }

 private:
  Pipe pipe_;
};

[[noreturn]] void run_launcher_process(std::string_view name, const Work& work, Fd foreground, Signals& signals) {
  int code = kExitFailure;
  try {
    setpgid(0, 0);  // the terminal's signals reach the foreground process only, which forwards them once
    become_subreaper();
    code = work(std::move(foreground), signals);
  } catch (const NoProgram& e) {
    fmt::print(stderr, "{}: {}\n", name, terminal_text(e.what()));
    code = e.exit_code;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", name, terminal_text(e.what()));
  }
  std::fflush(nullptr);
  _exit(code);
}

void forward(pid_t launcher, int number) {
  kill(launcher, number);
  if (number == SIGTSTP) raise(SIGSTOP);
}

// A launcher that does not act on two interrupts is stuck itself; its end is the end of the job.
constexpr int kMaxInterrupts = 3;

// Until the launcher has ended; returns how.
int watch(pid_t launcher, Signals& signals, InputRelay& input) {
  int interrupts = 0;
  while (true) {
    std::array<pollfd, 2> fds{{{signals.fd(), POLLIN, 0}, {input.fd(), POLLIN, 0}}};
    poll(fds.data(), fds.size(), -1);
    if (fds[1].revents != 0) input.move();
    for (const int number : signals.take()) {
      if (number != SIGCHLD) {
        forward(launcher, number == SIGINT && ++interrupts >= kMaxInterrupts ? SIGKILL : number);
        continue;
      }
      int status = 0;
      if (waitpid(launcher, &status, WNOHANG) == launcher) return status;
    }
  }
}

// Until no process of the job is left, the limit passes, or a signal says that nobody wants to wait.
void wait_for_saves(Signals& signals, Deadline limit) {
  constexpr int kPollMs = 20;
  while (!limit.passed()) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
    if (descendants(getpid()).empty()) return;
    pollfd ready{signals.fd(), POLLIN, 0};
    poll(&ready, 1, kPollMs);
    for (const int number : signals.take())
      if (number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT) return;
  }
}

int fork_and_watch(std::string_view name, const Work& work, Signals& signals, InputRelay& input, bool saves = false) {
  Pipe alive = make_pipe();
  std::fflush(nullptr);
  const pid_t launcher = fork();
  if (launcher < 0) throw_system("cannot start the launcher (fork)");
  if (launcher == 0) {
    alive.write.reset();
    run_launcher_process(name, work, std::move(alive.read), signals);
  }
  setpgid(launcher, launcher);
  alive.read.reset();
  input.keep_writer();
  const int status = watch(launcher, signals, input);
  if (WIFSIGNALED(status) && saves) wait_for_saves(signals, Deadline::in(kSaveLimit));
  end_descendants(Deadline::in(kEndLimit));
  if (WIFSIGNALED(status))
    fmt::print(stderr, "{}: the launcher (process {}) was {}; {}every process of the job was ended\n", name, launcher,
               describe_status(status), saves ? "its workers had a moment to save what they had, and " : "");
  return exit_code_of(status);
}

}  // namespace

int run_in_foreground(LaunchPlan plan) {
  become_subreaper();
  Signals signals;
  const bool saves = plan.saves_on_launcher_loss();
  const bool reads = plan.options.input == Stdin::first_rank;
  InputRelay input(reads && isatty(0) == 1);
  plan.input = reads ? (input.fd() >= 0 ? input.reader() : 0) : -1;
  const auto work = [&](Fd foreground, Signals& blocked) {
    plan.foreground = std::move(foreground);
    return launch(std::move(plan), blocked);
  };
  return fork_and_watch("cohort run", work, signals, input, saves);
}

int run_job(LaunchPlan plan) {
  for (const auto& [name, value] : plan.options.variables) plan.environment[name] = value;
  try {
    const LaunchOptions& o = plan.options;
    plan.program = find_program({o.command, o.module, o.no_python, o.python, example_folders()}, plan.environment);
  } catch (const NoProgram& e) {
    fmt::print(stderr, "cohort run: {}\n", terminal_text(e.what()));
    return e.exit_code;
  }
  plan.host = read_host_topology();
  plan_placement(plan);
  return run_in_foreground(std::move(plan));
}

int run_with_foreground(std::string_view name, const Work& work) {
  become_subreaper();
  Signals signals;
  InputRelay no_input(false);
  return fork_and_watch(name, work, signals, no_input);
}

}  // namespace cohort::launch
