#include "cohort/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "cohort/base/error.h"

namespace cohort::launch {

Signals::Signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) {
    struct sigaction now {};
    if (sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN && number != SIGCHLD) continue;
    sigaddset(&wanted, number);
  }
  signal(SIGCHLD, SIG_DFL);  // ignored children could not be waited for
  for (const int number : {SIGPIPE, SIGTTIN, SIGTTOU}) signal(number, SIG_IGN);
  if (sigprocmask(SIG_BLOCK, &wanted, &before_) != 0) throw_system("sigprocmask");
  fd_.reset(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw_system("signalfd");
}

std::vector<int> Signals::take() {
  std::vector<int> numbers;
  signalfd_siginfo info{};
  while (read(fd_.get(), &info, sizeof info) == sizeof info) numbers.push_back(static_cast<int>(info.ssi_signo));
  return numbers;
}

}  // namespace cohort::launch
