// Rank files back into values, event by event: a file of a million events is never a JSON tree in memory.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/regular_file.h"
#include "cohort/observe/timeline.h"

namespace cohort::observe {
namespace {

using nlohmann::json;

// Bounds under which a moment plus an offset, and the difference of two such sums, fit 64 bits.
constexpr double kLatestNs = 1e18;    // a machine that is up for 31 years
constexpr double kFarthestNs = 3e18;  // the system clock against a monotonic one, until the year 2065

constexpr std::size_t kLargestFile = 2_GiB;  // base/trace.h bounds a rank to a million events, some 150 MB

std::int64_t bounded(double ns, double most) {
  if (!(std::abs(ns) <= most)) throw_failure(Kind::corrupt, "a time of {} ns is beyond any clock", ns);
  return std::llround(ns);
}

struct Reader {  // NOLINT(bugprone-exception-escape): json moves without throwing, its check of itself only ends the program
  std::map<std::int64_t, TraceThread> streams;  // by tid
  json other{};

  void event(const json& e) {
    const auto ph = e.value("ph", std::string());
    const auto tid = e.value("tid", std::int64_t{0});
    if (ph == "M" && e.value("name", std::string()) == "thread_name") streams[tid].name = e.at("args").at("name").get<std::string>();
    if (ph != "X" && ph != "C") return;
    const json args = e.value("args", json::object());
    TraceEvent out{.name = e.at("name").get<std::string>(), .start_ns = nanoseconds(e.at("ts"))};
    if (ph == "X") {
      out.length_ns = std::max<std::int64_t>(0, nanoseconds(e.at("dur")));
      out.detail = args.value("name", std::string());
      out.bytes = args.value("bytes", std::uint64_t{0});
    } else {
      const json value = args.value("value", json());
      out.value = value.is_number() ? value.get<double>() : std::nan("");
    }
    streams[tid].events.push_back(std::move(out));
  }

  static std::int64_t nanoseconds(const json& us) { return bounded(us.get<double>() * 1e3, kLatestNs); }

  // Called by the parser at every end of an object, innermost first; false drops it, so that the tree stays empty.
  bool object_ended(int depth, const json& value) {
    if (depth != 2) return true;
    event(value);
    return false;
  }
};

Reader read(const std::string& text, const std::string& path) {
  Reader reader;
  try {
    const auto rest = json::parse(text, [&](int depth, json::parse_event_t what, json& value) {
      if (depth > 16) throw_failure(Kind::corrupt, "it nests deeper than a trace does");
      return what != json::parse_event_t::object_end || reader.object_ended(depth, value);
    });
    if (!rest.is_object() || !rest.contains("traceEvents")) throw_failure(Kind::corrupt, "it has no traceEvents");
    reader.other = rest.value("otherData", json::object());
  } catch (const std::exception& problem) {
    throw_failure(Kind::corrupt, "{} is no trace of a rank: {}", path, problem.what());
  }
  return reader;
}

}  // namespace

RankTrace parse_rank_trace(const std::string& text, const std::string& path) {
  auto reader = read(text, path);
  RankTrace out;
  try {
    out.rank = Rank{reader.other.value("rank", 0)};
    out.host = reader.other.value("host", std::string());
    out.offset_ns = bounded(reader.other.value("offset_us", 0.0) * 1e3, kFarthestNs);
  } catch (const std::exception& problem) {
    throw_failure(Kind::corrupt, "{}: its otherData cannot be read: {}", path, problem.what());
  }
  for (auto& [tid, stream] : reader.streams) {
    if (stream.name.empty()) stream.name = fmt::format("thread {}", tid);
    out.streams.push_back(std::move(stream));
  }
  return out;
}

void merge_files(std::span<const std::string> paths, const std::string& into, ClockBy clock) {
  std::vector<RankTrace> ranks;
  for (const auto& path : paths) {
    const auto text = read_regular_file(path, kLargestFile);
    ranks.push_back(parse_rank_trace(text, path));
    for (std::size_t i = 0; i + 1 < ranks.size(); ++i)
      if (ranks[i].rank == ranks.back().rank)
        throw_failure(Kind::usage, "{} and {} are both of rank {}; give one file of each rank", paths[i], path, ranks[i].rank.value);
    if (clock != ClockBy::wall) continue;
    const auto other = read(text, path).other;
    if (!other.contains("unix_us") || !other.contains("clock_us"))
      throw_failure(Kind::corrupt, "{} does not say how its clock stood to the system's; merge by offset", path);
    ranks.back().offset_ns = bounded((other["unix_us"].get<double>() - other["clock_us"].get<double>()) * 1e3, kFarthestNs);
  }
  write_file_atomically(into, chrome_trace(ranks));
}

}  // namespace cohort::observe
