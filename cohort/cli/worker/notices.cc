#include "cohort/cli/worker/notices.h"

#include <pthread.h>

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

}  // namespace

Notices::Notices() {
  const sigset_t both = the_two();
  if (const int error = pthread_sigmask(SIG_BLOCK, &both, nullptr); error != 0) throw_system("block SIGTERM and SIGUSR1", error);
  thread_ = std::thread([this] { wait(); });
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
    const std::lock_guard lock(mutex_);
    came_ = number == SIGTERM ? "SIGTERM" : "SIGUSR1";
    if (whom_) whom_(came_);
  }
}

}  // namespace cohort::cli::worker
