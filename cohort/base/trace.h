// Where the time went: spans and counters of one rank, written as a Chrome trace that ui.perfetto.dev opens.
// pid is the rank, tid the thread. Times are the host's monotonic clock, so files of ranks on one host line up when merged.
// Owner: the process. Threads: any; each records into its own bounded buffer, which outlives it. Off, a Span costs one relaxed load.
// Failure: start() and stop() throw Kind::system naming the path; recording never fails, events beyond the bounds are counted and dropped.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/base/ids.h"

namespace cohort {

struct TraceEvent {
  std::string name{}, detail{};
  std::int64_t start_ns = 0;    // on this host's monotonic clock
  std::int64_t length_ns = -1;  // -1: a counter
  std::uint64_t bytes = 0;
  double value = 0;  // of a counter
};
struct TraceThread {
  std::string name{};
  std::vector<TraceEvent> events{};
};

class Trace {
 public:
  // Writes an empty trace at once (a bad path is known before the run, not after it). Kind::usage when one is running.
  static void start(const std::string& path, Rank rank);
  // The same where a file is written in a way of its own; path is for messages.
  using Write = std::function<void(const std::string& content)>;
  static void start(const std::string& path, Rank rank, Write write);
  static void stop();  // writes the file; nothing to do when none is running
  static bool on() { return session_.load(std::memory_order_relaxed) != 0; }

  static void counter(std::string_view name, double value);
  static void name_thread(std::string_view name);  // what the viewer shows instead of "thread 2"

  // The reference clock (rank 0's host) is ours plus this. Goes into the file as otherData.offset_us, for merging files of several hosts.
  // Stays until it is set again, also over a stop() and start().
  static void set_clock_offset(std::int64_t nanoseconds);
  static std::vector<TraceThread> snapshot();  // a copy of what the running trace has recorded so far; empty when none is running

 private:
  friend class Span;
  static inline std::atomic<std::uint32_t> session_{0};  // 0: off, else the number of this start()
};

// Span span{"all_reduce", "grad.layer3", bytes}; is recorded when it goes out of scope. Views are borrowed until then.
class Span {
 public:
  explicit Span(std::string_view name, std::string_view detail = {}, std::uint64_t bytes = 0)
      : session_(Trace::session_.load(std::memory_order_relaxed)) {
    if (session_ != 0) begin(name, detail, bytes);
  }
  ~Span() {
    if (session_ != 0) end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void begin(std::string_view name, std::string_view detail, std::uint64_t bytes) noexcept;
  void end() noexcept;

  std::uint32_t session_;
  std::string_view name_, detail_;
  std::uint64_t bytes_ = 0;
  Clock::time_point start_;
};

}  // namespace cohort
