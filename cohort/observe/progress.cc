#include "cohort/observe/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <utility>

#include "cohort/base/log.h"

namespace cohort::observe {
namespace {

constexpr double kMemory = 3;  // seconds after which an old rate counts a third: steady to the eye, and still follows a change

constexpr double kLongAgo = -std::numeric_limits<double>::infinity();

double steady_seconds() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

void write_to(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

std::size_t terminal_columns(int fd) {
  if (isatty(fd) == 0) return 0;
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

Progress::Progress(ProgressOptions options) : options_(std::move(options)) {
  if (!options_.clock) options_.clock = steady_seconds;
  if (!options_.write) options_.write = [fd = options_.fd](std::string_view text) { write_to(fd, text); };
  if (!options_.width) options_.width = [fd = options_.fd] { return terminal_columns(fd); };
}

Progress::~Progress() {
  if (on_line_) put("\n");
}

void Progress::start(std::string label, std::uint64_t total, double units_per_step, std::string unit) {
  if (running_) finish();
  started_ = mark_time_ = options_.clock();
  drawn_ = options_.width() > 0 ? kLongAgo : started_;  // a bar shows at once; a pipe waits for its first line
  units_per_step_ = units_per_step;
  mark_done_ = 0;
  smooth_ = 0;
  state_ = {.label = std::move(label), .total = total, .unit = std::move(unit)};
  running_ = true;
}

void Progress::update(std::uint64_t done, std::vector<std::pair<std::string, double>> values) {
  if (!running_) return;
  state_.done = done;
  state_.values = std::move(values);
  const double now = options_.clock();
  if (now - drawn_ < options_.redraw_every.count()) return;  // the quick way out: no system call
  const double every = (options_.width() > 0 ? options_.redraw_every : options_.line_every).count();
  if (now - drawn_ >= every) draw(now);
}

void Progress::finish() {
  if (!running_) return;
  draw(options_.clock());
  if (on_line_) put("\n");
  on_line_ = false;
  running_ = false;
}

void Progress::clear() {
  if (!on_line_) return;
  put("\r\x1b[K");
  on_line_ = false;
  drawn_ = kLongAgo;
}

void Progress::draw(double now) {
  const double span = now - mark_time_;
  if (span > 0 && state_.done >= mark_done_) {
    const double rate = static_cast<double>(state_.done - mark_done_) / span;
    const double weight = smooth_ > 0 ? 1 - std::exp(-span / kMemory) : 1;
    smooth_ += weight * (rate - smooth_);
    mark_time_ = now;
    mark_done_ = state_.done;
  }
  state_.elapsed = now - started_;
  state_.steps_per_second = smooth_;
  state_.rate = smooth_ * units_per_step_;
  drawn_ = now;
  const auto width = options_.width();
  if (width == 0) return put(format_progress(state_, {.bar = false, .ascii = options_.ascii}) + "\n");
  // One column less than there are: in the last one some terminals wrap.
  const ProgressStyle look{.width = width - 1, .bar = true, .color = color_wanted(options_.fd), .ascii = options_.ascii};
  put("\r" + format_progress(state_, look) + "\x1b[K");
  on_line_ = true;
}

void Progress::put(std::string_view text) { options_.write(text); }

}  // namespace cohort::observe
