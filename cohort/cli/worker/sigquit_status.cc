#include "cohort/cli/worker/sigquit_status.h"

#include <pthread.h>

#include <csignal>

#include "cohort/base/error.h"
#include "cohort/base/log.h"

namespace cohort::cli::worker {
namespace {

sigset_t only_quit() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGQUIT);
  return set;
}

}  // namespace

SigquitStatus::SigquitStatus(const train::RankStatus& status) : status_(status) {
  const sigset_t quit = only_quit();
  if (const int error = pthread_sigmask(SIG_BLOCK, &quit, nullptr); error != 0) throw_system("block SIGQUIT", error);
  thread_ = std::thread([this] { answer(); });
}

SigquitStatus::~SigquitStatus() {
  stop_ = true;
  pthread_kill(thread_.native_handle(), SIGQUIT);  // wakes it
  thread_.join();
}

void SigquitStatus::answer() {
  const sigset_t quit = only_quit();
  int number = 0;
  while (sigwait(&quit, &number) == 0 && !stop_) log_line(Level::info, status_.text());
}

}  // namespace cohort::cli::worker
