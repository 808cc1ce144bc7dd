#include "cohort/python/hvd/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/queue/signature.h"

namespace cohort::python {
namespace {

std::string upper_case(queue::Collective collective) {
  std::string next(queue::horovod_name(collective));
  std::transform(next.begin(), next.end(), next.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return next;
}

}  // namespace

void Timeline::start(const std::string& path, bool mark_cycles) {
  std::lock_guard lock(mutex_);
  end();
  file_.reset(std::fopen(path.c_str(), "w"));
  if (!file_) throw_system(fmt::format("open {} for the timeline", path));
  path_ = path;
  mark_cycles_ = mark_cycles;
  first_ = true;
  rows_.clear();
  began_ = Clock::now();
  const auto since_epoch = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch());
  line(fmt::format(R"({{"name": "process_name", "ph": "M", "pid": 0, "args": {{"start_time_since_epoch_in_micros": {}}}}})",
                   since_epoch.count()));
  std::fflush(file_.get());
  on_ = true;
}

void Timeline::stop() {
  std::lock_guard lock(mutex_);
  end();
}

void Timeline::end() {
  on_ = false;
  if (!file_) return;
  std::fputs("\n]\n", file_.get());
  file_.reset();
}

// The comma goes in front of each but the first, so that only the closing bracket is missing at any time.
void Timeline::line(const std::string& text) {
  const bool written = std::fputs(first_ ? "[\n" : ",\n", file_.get()) >= 0 && std::fputs(text.c_str(), file_.get()) >= 0;
  first_ = false;
  if (written) return;
  log_warning("the timeline {} cannot be written any more ({}); it ends here", path_, std::strerror(errno));
  on_ = false;
  file_.reset();
}

Timeline::Row& Timeline::row(const std::string& name) {
  const auto [at, fresh] = rows_.try_emplace(name, Row{static_cast<int>(rows_.size()) + 1});
  if (fresh) {
    line(nlohmann::json{{"name", "process_name"}, {"ph", "M"}, {"pid", at->second.pid}, {"args", {{"name", name}}}}.dump());
  }
  return at->second;
}

void Timeline::record(const queue::Event& event) noexcept {
  using What = queue::Event::What;
  std::lock_guard lock(mutex_);
  if (!file_) return;
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began_).count();
  if (event.what == What::cycle) {
    if (mark_cycles_) line(fmt::format(R"({{"name": "CYCLE_START", "ph": "i", "s": "g", "pid": 0, "ts": {}}})", now));
    return;
  }
  Row& its = row(std::string(event.name));
  const auto begin = [&](const std::string& phase) {
    if (file_) line(fmt::format(R"({{"name": "{}", "ph": "B", "pid": {}, "ts": {}}})", phase, its.pid, now));
  };
  const auto end = [&](bool& phase) {
    if (phase && file_) line(fmt::format(R"({{"ph": "E", "pid": {}, "ts": {}}})", its.pid, now));
    phase = false;
  };
  if (event.what == What::submitted) {
    its.negotiating = true;
    begin("NEGOTIATE_" + upper_case(event.collective));
  } else if (event.what == What::started) {
    end(its.negotiating);
    its.running = true;
    begin(upper_case(event.collective));
  } else {
    end(its.negotiating);
    end(its.running);
    if (file_) std::fflush(file_.get());
  }
}

}  // namespace cohort::python
