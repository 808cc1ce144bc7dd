// One timeline of all ranks: their spans on one clock, as a Chrome trace that ui.perfetto.dev opens.
//   pid = rank, tid = stream (a thread, a lane, a GPU stream); times in microseconds from the first event on.
// Clocks: on one host all ranks read the same monotonic clock, and the offset is 0. Across hosts a rank exchanges a few messages with rank
// 0 (clock_offset) and gives the result to Trace::set_clock_offset, from where it travels in the rank's file. Threads: pure functions,
// except merge_files, which reads and writes. Failure: Kind::corrupt naming the file that is no trace of ours.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/ids.h"
#include "cohort/base/trace.h"

namespace cohort::observe {

// One ping and its pong, each moment in nanoseconds on the clock of who noted it:
// we send at t0, the other receives at t1 and answers at t2, we receive at t3.
struct PingPong {
  std::int64_t t0 = 0, t1 = 0, t2 = 0, t3 = 0;
};
// other's clock = our clock + offset; the truth is within +-uncertainty (half the time the messages were under way, [Mills 1991]):
//   offset = ((t1 - t0) + (t2 - t3)) / 2,   round trip = (t3 - t0) - (t2 - t1)
struct ClockOffset {
  std::int64_t offset_ns = 0;
  std::int64_t uncertainty_ns = 0;
};
// From the sample with the shortest round trip: queues only ever make it longer. nullopt when no sample is possible (t3 < t0, or the other
// held the message longer than we waited).
std::optional<ClockOffset> clock_offset(std::span<const PingPong> samples);

struct RankTrace {
  Rank rank{0};
  std::string host{};          // shown beside the rank, may be empty
  std::int64_t offset_ns = 0;  // reference clock = this rank's clock + offset
  std::vector<TraceThread> streams{};
};

// Viewers want the spans of a tid to nest: a span starts after and ends before its parent. Gives each event of a stream a lane, 0 as a
// rule; spans that overlap without nesting (GPU streams, clocks that jumped) go to further lanes, which become rows of their own.
std::vector<int> nesting_lanes(std::span<const TraceEvent> events);

std::string chrome_trace(std::span<const RankTrace> ranks);

RankTrace parse_rank_trace(const std::string& text, const std::string& path);  // what Trace::stop() wrote; path: for messages

enum class ClockBy : std::uint8_t {
  offset,  // the monotonic clock and the offset in each file: ranks of one host, or ranks that measured
  wall,    // the system clocks, as good as the hosts' NTP: for files of several hosts without a measured offset
};
void merge_files(std::span<const std::string> paths, const std::string& into, ClockBy clock = ClockBy::offset);

}  // namespace cohort::observe
