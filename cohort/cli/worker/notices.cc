#include "cohort/cli/worker/notices.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "cohort/base/error.h"

namespace cohort::cli::worker {
namespace {

sigset_t the_two() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  return set;
}

// The reading ends of the pipes that we print into.
std::vector<Fd> own_pipes() {
  std::vector<Fd> found;
  for (const char* path : {"/proc/self/fd/1", "/proc/self/fd/2"}) {
    struct stat what {};
    if (stat(path, &what) == 0 && S_ISFIFO(what.st_mode)) found.emplace_back(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }
  return found;
}

}  // namespace

void hold_notices() {
  const sigset_t both = the_two();
  if (const int error = pthread_sigmask(SIG_BLOCK, &both, nullptr); error != 0) throw_system("block SIGTERM and SIGUSR1", error);
}

Notices::Notices(Orphan orphan)
    : orphan_(orphan), launcher_(getppid()), listeners_(orphan == Orphan::ends_soon ? own_pipes() : std::vector<Fd>{}) {
  sigset_t all, before;
  sigfillset(&all);  // while its thread starts: that one leaves to others what is for others, SIGQUIT above all
  if (const int error = pthread_sigmask(SIG_SETMASK, &all, &before); error != 0) throw_system("block SIGTERM and SIGUSR1", error);
  thread_ = std::thread([this] { wait(); });
  for (const int number : {SIGTERM, SIGUSR1}) sigaddset(&before, number);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Notices::~Notices() {
  stop_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR1);  // wakes it
  thread_.join();
}

void Notices::tell(std::function<void(const std::string&)> whom) {
  const std::lock_guard lock(mutex_);
  whom_ = std::move(whom);
  if (whom_ && !came_.empty()) whom_(came_);
}

void Notices::wait() {
  const sigset_t both = the_two();
  int number = 0;
  while (sigwait(&both, &number) == 0 && !stop_) {
    look_for_launcher();
    const std::lock_guard lock(mutex_);
    came_ = number == SIGTERM ? "SIGTERM" : "SIGUSR1";
    if (whom_) whom_(came_);
  }
}

void Notices::look_for_launcher() {
  if (orphan_ == Orphan::goes_on || getppid() == launcher_) return;
  alarm(kOrphanLimit);
  const Fd nobody{open("/dev/null", O_WRONLY | O_CLOEXEC)};
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
    if (nobody) dup2(nobody.get(), fd);
}

}  // namespace cohort::cli::worker
