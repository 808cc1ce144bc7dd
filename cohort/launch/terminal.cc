#include "cohort/launch/terminal.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "cohort/base/log.h"

namespace cohort::launch {
namespace {

constexpr std::size_t kMaxPending = 1 << 20;  // more unread output than this holds the ranks back
constexpr std::size_t kWriteBytes = 4096;     // PIPE_BUF: what a pipe that polls writable takes without blocking
constexpr int kFlushPollMs = 1000;

bool same_file(int a, int b) {
  struct stat x {
  }, y{};
  return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

ScreenStyle style_for(const LaunchPlan& plan) {
  const LaunchOptions& o = plan.options;
  const auto colored = [&](int fd) { return o.color == "always" || (o.color == "auto" && color_wanted(fd)); };
  const auto over_bar = [&](int fd) { return plan.worker.draws_progress_bar && isatty(fd) == 1; };
  return {o.prefix, {colored(1), colored(2)}, {over_bar(1), over_bar(2)}, same_file(1, 2)};
}

}  // namespace

Terminal::Terminal(const LaunchPlan& plan) : screen_(style_for(plan)) {}

bool Terminal::full(int stream) { return screen_.pending(stream).size() > kMaxPending; }

void Terminal::add_polls(std::vector<pollfd>& fds) {
  for (int stream = 1; stream <= 2; ++stream)
    if (!screen_.pending(stream).empty()) fds.push_back({stream, POLLOUT, 0});
}

void Terminal::write() {
  write_stream(1);
  write_stream(2);
}

void Terminal::write_stream(int stream) {
  std::string& pending = screen_.pending(stream);
  std::size_t done = 0;
  while (done < pending.size()) {
    pollfd ready{stream, POLLOUT, 0};
    if (poll(&ready, 1, 0) <= 0) break;
    const ssize_t n = ::write(stream, pending.data() + done, std::min(kWriteBytes, pending.size() - done));
    if (n > 0) {
      done += static_cast<std::size_t>(n);
      continue;
    }
    if (errno == EAGAIN || errno == EINTR) break;
    done = pending.size();  // nobody reads it any more
    if (stream == 1 && errno == EPIPE) reader_gone_ = true;
  }
  pending.erase(0, done);
}

void Terminal::flush(Signals& signals, int foreground) {
  write();
  while (!empty()) {
    std::vector<pollfd> fds{{signals.fd(), POLLIN, 0}, {foreground, POLLIN, 0}};
    add_polls(fds);
    poll(fds.data(), fds.size(), kFlushPollMs);
    if (fds[1].revents != 0) return;
    for (const int number : signals.take())
      if (number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT) return;  // a reader that does not read
    write();
  }
}

}  // namespace cohort::launch
