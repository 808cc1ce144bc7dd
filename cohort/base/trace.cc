#include "cohort/base/trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/file.h"

namespace cohort {
namespace {

constexpr std::size_t kMostPerThread = 1 << 16;  // about 8 MB of a busy thread, an hour of steps with 20 spans a second
constexpr std::size_t kMostInAll = 1 << 20;      // also bounds what many short-lived threads leave behind

struct Buffer {
  std::mutex mutex;  // the owner against stop(): uncontended while recording
  std::uint32_t session = 0;
  std::vector<TraceEvent> events;
  std::string thread_name;
};

struct Recorder {
  std::mutex mutex;  // guards all below but the atomics
  std::string path;
  Trace::Write write;
  Rank rank;
  std::uint32_t sessions = 0;
  std::vector<std::shared_ptr<Buffer>> buffers;  // shared with the thread: events outlive it, and it may outlive a session
  std::atomic<std::size_t> recorded{0};
  std::atomic<std::size_t> dropped{0};
  std::atomic<std::int64_t> offset_ns{0};
};

Recorder& recorder() {
  static auto* one = new Recorder;  // never destroyed: threads may end after main
  return *one;
}

// A thread's buffer, left in the recorder's list when the thread ends unless nothing was recorded.
struct Holder {
  std::shared_ptr<Buffer> buffer = std::make_shared<Buffer>();
  Holder() {
    const std::lock_guard lock(recorder().mutex);
    recorder().buffers.push_back(buffer);
  }
  ~Holder() {
    const std::lock_guard lock(recorder().mutex);
    const std::lock_guard own(buffer->mutex);
    if (buffer->events.empty()) std::erase(recorder().buffers, buffer);
  }
};

Buffer& mine() {
  thread_local Holder holder;
  return *holder.buffer;
}

std::int64_t to_ns(Clock::time_point at) { return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count(); }

void record(std::uint32_t session, std::string_view name, std::string_view detail, TraceEvent event) noexcept try {
  event.name = name;
  event.detail = detail;
  Buffer& buffer = mine();
  const std::lock_guard lock(buffer.mutex);
  if (buffer.session != session) buffer.events.clear(), buffer.session = session;
  const bool fits = buffer.events.size() < kMostPerThread && recorder().recorded.fetch_add(1, std::memory_order_relaxed) < kMostInAll;
  if (fits)
    buffer.events.push_back(std::move(event));
  else
    recorder().dropped.fetch_add(1, std::memory_order_relaxed);
} catch (...) {  // out of memory: the run matters more than its trace
}

std::string json_text(std::string_view text) {  // bytes that are no UTF-8 become U+FFFD: the file stays valid whatever names come in
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append_metadata(std::string& out, int pid, std::size_t tid, std::string_view what, std::string_view name) {
  out += fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":{}}}}},)"
                     "\n",
                     pid, tid, what, json_text(name));
}

void append_event(std::string& out, int pid, std::size_t tid, const TraceEvent& e) {
  const double us = static_cast<double>(e.start_ns) * 1e-3;
  if (e.length_ns < 0) {
    const auto value = nlohmann::json(e.value).dump();  // null for inf and nan
    out += fmt::format(R"({{"ph":"C","pid":{},"tid":{},"ts":{:.3f},"name":{},"args":{{"value":{}}}}},)"
                       "\n",
                       pid, tid, us, json_text(e.name), value);
    return;
  }
  std::string args;
  if (!e.detail.empty()) args += fmt::format(R"("name":{})", json_text(e.detail));
  if (e.bytes != 0) args += fmt::format(R"({}"bytes":{})", args.empty() ? "" : ",", e.bytes);
  out += fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"args":{{{}}}}},)"
                     "\n",
                     pid, tid, us, static_cast<double>(e.length_ns) * 1e-3, json_text(e.name), args);
}

std::string host_name() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string thread_text(const Buffer& buffer, std::size_t tid) {
  return buffer.thread_name.empty() ? fmt::format("thread {}", tid) : buffer.thread_name;
}

// recorder().mutex is held.
std::string render(std::uint32_t session) {
  auto& r = recorder();
  const int pid = r.rank ? r.rank.value : 0;
  std::string out = "{\"traceEvents\":[\n";
  append_metadata(out, pid, 0, "process_name", r.rank ? fmt::format("rank {}", pid) : "cohort");
  for (std::size_t tid = 0; tid < r.buffers.size(); ++tid) {
    Buffer& buffer = *r.buffers[tid];
    const std::lock_guard lock(buffer.mutex);
    if (buffer.session != session || buffer.events.empty()) continue;
    append_metadata(out, pid, tid, "thread_name", thread_text(buffer, tid));
    for (const TraceEvent& e : buffer.events) append_event(out, pid, tid, e);
  }
  out.erase(out.size() - 2, 1);  // the comma after the last event; the process name is always there
  const auto wall = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const double clock = static_cast<double>(to_ns(Clock::now())) * 1e-3;
  out += fmt::format(
      R"(],"displayTimeUnit":"ms","otherData":{{"rank":{},"host":{},"dropped":{},"clock_us":{:.3f},"unix_us":{},"offset_us":{:.3f}}}}})"
      "\n",
      pid, json_text(host_name()), r.dropped.load(), clock, wall,
      static_cast<double>(r.offset_ns.load()) * 1e-3);  // the two clocks at one moment: what a merge across hosts needs
  return out;
}

}  // namespace

void Trace::start(const std::string& path, Rank rank) {
  start(path, rank, [path](const std::string& content) { write_file_atomically(path, content); });
}

void Trace::start(const std::string& path, Rank rank, Write write) {
  auto& r = recorder();
  const std::lock_guard lock(r.mutex);
  if (on()) throw_failure(Kind::usage, "a trace to {} is running; stop it before starting one to {}", r.path, path);
  std::erase_if(r.buffers, [](const auto& buffer) { return buffer.use_count() == 1; });  // threads that ended in an earlier session
  r.path = path;
  r.rank = rank;
  r.recorded = 0;
  r.dropped = 0;
  const std::uint32_t session = ++r.sessions;
  r.write = std::move(write);
  r.write(render(session));
  session_.store(session, std::memory_order_relaxed);
}

void Trace::stop() {
  auto& r = recorder();
  const std::lock_guard lock(r.mutex);
  const std::uint32_t session = session_.exchange(0, std::memory_order_relaxed);
  if (session == 0) return;
  const auto content = render(session);
  for (const auto& buffer : r.buffers) {
    const std::lock_guard own(buffer->mutex);
    std::vector<TraceEvent>().swap(buffer->events);
  }
  r.write(content);
}

void Trace::counter(std::string_view name, double value) {
  const auto session = session_.load(std::memory_order_relaxed);
  if (session != 0) record(session, name, {}, {.start_ns = to_ns(Clock::now()), .value = value});
}

void Trace::name_thread(std::string_view name) {
  Buffer& buffer = mine();
  const std::lock_guard lock(buffer.mutex);
  buffer.thread_name = name;
}

void Trace::set_clock_offset(std::int64_t nanoseconds) { recorder().offset_ns = nanoseconds; }

std::vector<TraceThread> Trace::snapshot() {
  auto& r = recorder();
  const std::lock_guard lock(r.mutex);
  const auto session = session_.load(std::memory_order_relaxed);
  std::vector<TraceThread> out;
  for (std::size_t tid = 0; session != 0 && tid < r.buffers.size(); ++tid) {
    Buffer& buffer = *r.buffers[tid];
    const std::lock_guard own(buffer.mutex);
    if (buffer.session == session && !buffer.events.empty()) out.push_back({thread_text(buffer, tid), buffer.events});
  }
  return out;
}

void Span::begin(std::string_view name, std::string_view detail, std::uint64_t bytes) noexcept {
  name_ = name;
  detail_ = detail;
  bytes_ = bytes;
  start_ = Clock::now();
}

void Span::end() noexcept {
  if (Trace::session_.load(std::memory_order_relaxed) != session_) return;  // stopped meanwhile
  const auto now = Clock::now();
  record(session_, name_, detail_, {.start_ns = to_ns(start_), .length_ns = to_ns(now) - to_ns(start_), .bytes = bytes_});
}

}  // namespace cohort
