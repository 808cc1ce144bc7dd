#include "cohort/observe/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cohort/observe/text.h"

namespace cohort::observe {
namespace {

constexpr int kMostLanes = 64;  // of one stream; what overlaps still more stays in the last

// Nanoseconds as microseconds with three decimals, in integers: rounding must not push a child out of its parent.
std::string microseconds(std::int64_t ns) {
  const auto size = ns < 0 ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", size / 1000, size % 1000);
}

void append_metadata(std::string& out, int pid, int tid, std::string_view what, std::string_view key, const std::string& value) {
  out += fmt::format("{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"args\":{{\"{}\":{}}}}},\n", pid, tid, what, key, value);
}

void append_event(std::string& out, int pid, int tid, const TraceEvent& e, std::int64_t shift) {
  const auto at = fmt::format("\"pid\":{},\"tid\":{},\"ts\":{},\"name\":{}", pid, tid, microseconds(e.start_ns + shift), json_text(e.name));
  if (e.length_ns < 0) {
    out += fmt::format("{{\"ph\":\"C\",{},\"args\":{{\"value\":{}}}}},\n", at, json_number(e.value));
    return;
  }
  std::string args;
  if (!e.detail.empty()) args += fmt::format("\"name\":{}", json_text(e.detail));
  if (e.bytes != 0) args += fmt::format("{}\"bytes\":{}", args.empty() ? "" : ",", e.bytes);
  out += fmt::format("{{\"ph\":\"X\",{},\"dur\":{},\"args\":{{{}}}}},\n", at, microseconds(e.length_ns), args);
}

void append_rank(std::string& out, const RankTrace& rank, std::int64_t origin) {
  const int pid = std::max(rank.rank.value, 0);
  const auto name = rank.host.empty() ? fmt::format("rank {}", pid) : fmt::format("rank {} on {}", pid, rank.host);
  append_metadata(out, pid, 0, "process_name", "name", json_text(name));
  append_metadata(out, pid, 0, "process_sort_index", "sort_index", fmt::format("{}", pid));
  int first = 0;  // tid of the stream's lane 0
  for (const auto& stream : rank.streams) {
    const auto lanes = nesting_lanes(stream.events);
    const int count = lanes.empty() ? 1 : *std::max_element(lanes.begin(), lanes.end()) + 1;
    for (int lane = 0; lane < count; ++lane) {
      const auto row = lane == 0 ? stream.name : fmt::format("{} ({})", stream.name, lane + 1);
      append_metadata(out, pid, first + lane, "thread_name", "name", json_text(row));
      append_metadata(out, pid, first + lane, "thread_sort_index", "sort_index", fmt::format("{}", first + lane));
    }
    for (std::size_t i = 0; i < lanes.size(); ++i) append_event(out, pid, first + lanes[i], stream.events[i], rank.offset_ns - origin);
    first += count;
  }
}

std::int64_t first_moment(std::span<const RankTrace> ranks) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const auto& rank : ranks)
    for (const auto& stream : rank.streams)
      for (const auto& event : stream.events) first = std::min(first, event.start_ns + rank.offset_ns);
  return first == std::numeric_limits<std::int64_t>::max() ? 0 : first;
}

}  // namespace

std::optional<ClockOffset> clock_offset(std::span<const PingPong> samples) {
  std::optional<ClockOffset> best;
  for (const auto& s : samples) {
    const auto round_trip = (s.t3 - s.t0) - (s.t2 - s.t1);
    if (s.t3 < s.t0 || s.t2 < s.t1 || round_trip < 0) continue;
    const auto half = round_trip / 2 + round_trip % 2;
    if (best && best->uncertainty_ns <= half) continue;
    best = ClockOffset{(s.t1 - s.t0) / 2 + (s.t2 - s.t3) / 2 + ((s.t1 - s.t0) % 2 + (s.t2 - s.t3) % 2) / 2,
                       half};  // halves first: no overflow
  }
  return best;
}

std::vector<int> nesting_lanes(std::span<const TraceEvent> events) {
  std::vector<std::size_t> order(events.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {  // parents before their children
    const auto& x = events[a];
    const auto& y = events[b];
    return x.start_ns != y.start_ns ? x.start_ns < y.start_ns : x.length_ns > y.length_ns;
  });
  std::vector<int> lanes(events.size());
  std::vector<std::vector<std::int64_t>> open(1);  // per lane: ends of the spans that are running, outermost first
  for (const auto i : order) {
    const auto& e = events[i];
    if (e.length_ns < 0) continue;  // a counter is no span
    const auto end = e.start_ns + e.length_ns;
    for (std::size_t lane = 0;; ++lane) {
      if (lane == open.size()) open.emplace_back();
      auto& running = open[lane];
      while (!running.empty() && running.back() <= e.start_ns) running.pop_back();
      const bool fits = running.empty() || end <= running.back() || lane + 1 == kMostLanes;
      if (!fits) continue;
      running.push_back(end);
      lanes[i] = static_cast<int>(lane);
      break;
    }
  }
  return lanes;
}

std::string chrome_trace(std::span<const RankTrace> ranks) {
  const auto origin = first_moment(ranks);
  std::string out = "{\"traceEvents\":[\n";
  for (const auto& rank : ranks) append_rank(out, rank, origin);
  if (out.ends_with(",\n")) out.erase(out.size() - 2, 1);
  return out + "],\"displayTimeUnit\":\"ms\"}\n";
}

}  // namespace cohort::observe
