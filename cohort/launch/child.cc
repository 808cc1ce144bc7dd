#include "cohort/launch/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/launch/exit_codes.h"

namespace cohort::launch {
namespace {

struct Pipe {
  Fd read, write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_system("pipe for a rank's output");
  return {Fd{ends[0]}, Fd{ends[1]}};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const auto& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

// Everything the child needs, made before the fork: between fork and exec only plain system calls are safe.
struct Prepared {
  const char* path;
  char* const* argv;
  char* const* envp;
  int input, out, err, report;
  cpu_set_t cpus;
  bool bound;
  sigset_t mask;
  int parent_death_signal;
  pid_t parent;
};

[[noreturn]] void exec_rank(const Prepared& p) {
  const auto give_up = [&] {
    const int problem = errno;
    [[maybe_unused]] const auto ignored = write(p.report, &problem, sizeof problem);
    _exit(kExitNotFound);
  };
  setpgid(0, 0);
  if (prctl(PR_SET_PDEATHSIG, p.parent_death_signal) != 0) give_up();
  if (getppid() != p.parent) _exit(kExitSignalBase + SIGKILL);  // the launcher died before it could be watched
  if (dup2(p.input, 0) < 0 || dup2(p.out, 1) < 0 || dup2(p.err, 2) < 0) give_up();
  if (p.bound && sched_setaffinity(0, sizeof p.cpus, &p.cpus) != 0) give_up();
  for (const int number : {SIGPIPE, SIGTTIN, SIGTTOU}) signal(number, SIG_DFL);
  sigprocmask(SIG_SETMASK, &p.mask, nullptr);
  execve(p.path, p.argv, p.envp);
  give_up();
  _exit(kExitNotFound);
}

cpu_set_t as_set(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
  return set;
}

// The errno of a failed start, or 0 once the program runs: the pipe is closed by a successful exec.
int read_exec_errno(const Fd& report) {
  int problem = 0;
  ssize_t n = -1;
  do n = read(report.get(), &problem, sizeof problem);
  while (n < 0 && errno == EINTR);
  return n == sizeof problem ? problem : 0;
}

[[noreturn]] void refuse(const std::string& path, int problem) {
  for (const int scarce : {EAGAIN, ENOMEM, EMFILE, ENFILE})
    if (problem == scarce) throw_system(fmt::format("'{}' cannot be started", path), problem);
  if (problem == ENOEXEC) throw NoProgram(fmt::format("'{}' is neither a program nor a script with a #! line", path), kExitNotExecutable);
  if (problem == ENOENT) throw NoProgram(fmt::format("'{}': its interpreter (the #! line) does not exist", path), kExitNotFound);
  throw NoProgram(fmt::format("'{}' cannot be started: {}", path, std::strerror(problem)), kExitNotExecutable);
}

}  // namespace

Child start_child(const ChildPlan& plan) {
  Pipe out = make_pipe(), err = make_pipe(), report = make_pipe();
  const Fd nothing{plan.input < 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1};
  if (plan.input < 0 && !nothing) throw_system("/dev/null for a rank's input");
  const auto argv = pointers(plan.program->argv);
  const auto envp = pointers(plan.environment);
  const Prepared prepared{plan.program->path.c_str(),
                          argv.data(),
                          envp.data(),
                          plan.input < 0 ? nothing.get() : plan.input,
                          out.write.get(),
                          err.write.get(),
                          report.write.get(),
                          as_set(plan.cpus),
                          !plan.cpus.empty(),
                          plan.signal_mask,
                          plan.parent_death_signal,
                          getpid()};
  const pid_t pid = fork();
  if (pid < 0) throw_system("cannot start another process (fork)");
  if (pid == 0) exec_rank(prepared);
  setpgid(pid, pid);  // here and there: whoever is first
  report.write.reset();
  if (const int problem = read_exec_errno(report.read)) {
    waitpid(pid, nullptr, 0);
    refuse(plan.program->path, problem);
  }
  for (const Fd* fd : {&out.read, &err.read}) fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  return {pid, std::move(out.read), std::move(err.read)};
}

}  // namespace cohort::launch
