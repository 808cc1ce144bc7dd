#include "cohort/python/train/interrupt_watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>

#include "cohort/base/error.h"

namespace cohort::python {

InterruptWatcher::InterruptWatcher(SignalPipe pipe, OnSignal calls) : pipe_(std::move(pipe)), calls_(std::move(calls)) {
  if (pipe_.fd < 0) return;
  stop_ = Fd{eventfd(0, EFD_CLOEXEC)};
  if (!stop_) throw_system("eventfd");
  sigset_t all, before;
  sigfillset(&all);  // signals are for Python's threads
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

InterruptWatcher::~InterruptWatcher() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof one) != sizeof one) std::terminate();  // it would never end
  thread_.join();
}

void InterruptWatcher::watch() const {
  while (true) {
    pollfd both[] = {{.fd = pipe_.fd, .events = POLLIN, .revents = 0}, {.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    if (poll(both, 2, -1) < 0) continue;  // interrupted
    if (both[1].revents != 0) return;
    unsigned char numbers[64];
    const ssize_t count = read(pipe_.fd, numbers, sizeof numbers);
    for (ssize_t i = 0; i < count; ++i) handle(numbers[i]);
    if (count == 0) return;  // closed
  }
}

void InterruptWatcher::handle(unsigned char number) const {
  if (std::ranges::find(pipe_.signals, int{number}) == pipe_.signals.end()) return;
  switch (number) {
    case SIGINT: return calls_.interrupt();
    case SIGTERM: return calls_.leave("SIGTERM");
    case SIGUSR1: return calls_.leave("SIGUSR1");
    case SIGQUIT: return calls_.status();
    default: return;
  }
}

}  // namespace cohort::python
