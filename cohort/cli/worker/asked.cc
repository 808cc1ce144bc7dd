#include "cohort/cli/worker/asked.h"

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

Asked::Asked(const Whereabouts& where) : where_(where) {
  const sigset_t quit = only_quit();
  if (const int error = pthread_sigmask(SIG_BLOCK, &quit, nullptr); error != 0) throw_system("block SIGQUIT", error);
  thread_ = std::thread([this] { answer(); });
}

Asked::~Asked() {
  stop_ = true;
  pthread_kill(thread_.native_handle(), SIGQUIT);  // wakes it
  thread_.join();
}

void Asked::answer() {
  const sigset_t quit = only_quit();
  int number = 0;
  while (sigwait(&quit, &number) == 0 && !stop_) log_line(Level::info, where_.text());
}

}  // namespace cohort::cli::worker
