#include "cohort/cli/worker/preemption.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "cohort/base/error.h"

namespace cohort::cli::worker {
namespace {

sigset_t preemption_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  return set;
}

// The read ends of the pipes that we print into.
std::vector<Fd> own_pipes() {
  std::vector<Fd> found;
  for (const char* path : {"/proc/self/fd/1", "/proc/self/fd/2"}) {
    struct stat what {};
    if (stat(path, &what) == 0 && S_ISFIFO(what.st_mode)) found.emplace_back(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }
  return found;
}

}  // namespace

void block_preemption_signals() {
  const sigset_t both = preemption_signals();
  if (const int error = pthread_sigmask(SIG_BLOCK, &both, nullptr); error != 0) throw_system("block SIGTERM and SIGUSR1", error);
}

PreemptionHandler::PreemptionHandler(OnParentExit on_parent_exit)
    : on_parent_exit_(on_parent_exit),
      launcher_(getppid()),
      listeners_(on_parent_exit == OnParentExit::exit_soon ? own_pipes() : std::vector<Fd>{}) {
  sigset_t all, before;
  sigfillset(&all);  // while its thread starts: that one leaves to others what is for others, SIGQUIT above all
  if (const int error = pthread_sigmask(SIG_SETMASK, &all, &before); error != 0) throw_system("block SIGTERM and SIGUSR1", error);
  thread_ = std::thread([this] { wait(); });
  for (const int number : {SIGTERM, SIGUSR1}) sigaddset(&before, number);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

PreemptionHandler::~PreemptionHandler() {
  stop_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR1);  // wakes it
  thread_.join();
}

void PreemptionHandler::set_callback(std::function<void(const std::string&)> callback) {
  const std::lock_guard lock(mutex_);
  callback_ = std::move(callback);
  if (callback_ && !pending_.empty()) callback_(pending_);
}

void PreemptionHandler::wait() {
  const sigset_t both = preemption_signals();
  int number = 0;
  while (sigwait(&both, &number) == 0 && !stop_) {
    check_parent();
    const std::lock_guard lock(mutex_);
    pending_ = number == SIGTERM ? "SIGTERM" : "SIGUSR1";
    if (callback_) callback_(pending_);
  }
}

void PreemptionHandler::check_parent() {
  if (on_parent_exit_ == OnParentExit::ignore || getppid() == launcher_) return;
  alarm(kExitLimit);
  const Fd nobody{open("/dev/null", O_WRONLY | O_CLOEXEC)};
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
    if (nobody) dup2(nobody.get(), fd);
}

}  // namespace cohort::cli::worker
