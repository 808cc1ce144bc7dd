#include "cohort/base/trace.h"

#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "cohort/base/bytes.h"
#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"

namespace cohort {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Runs act under a trace and gives the file it wrote.
template <class Act>
json traced(Act act, Rank rank = Rank{2}) {
  const TempDir dir;
  Trace::start(dir.file("trace.json"), rank);
  act();
  Trace::stop();
  return json::parse(read_file(dir.file("trace.json"), 1_GiB));
}

std::vector<json> events(const json& trace, const std::string& ph) {
  std::vector<json> out;
  for (const auto& e : trace["traceEvents"])
    if (e["ph"] == ph) out.push_back(e);
  return out;
}

TEST(Trace, OffRecordsNothing) {
  EXPECT_FALSE(Trace::on());
  { const Span span{"before"}; }
  Trace::counter("before", 1);
  const auto trace = traced([] {});
  EXPECT_TRUE(events(trace, "X").empty());
  EXPECT_TRUE(events(trace, "C").empty());
  Trace::stop();  // nothing to do
}

TEST(Trace, WritesSpansThatNestWithNameDetailAndBytes) {
  const double before = std::chrono::duration<double, std::micro>(Clock::now().time_since_epoch()).count();
  const auto trace = traced([] {
    const Span outer{"step"};
    const Span inner{"all_reduce", "grad", 1024};
  });
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  const auto spans = events(trace, "X");
  ASSERT_EQ(spans.size(), 2U);
  const auto& inner = spans[0];
  const auto& outer = spans[1];
  EXPECT_EQ(inner["name"], "all_reduce");
  EXPECT_EQ(inner["args"]["name"], "grad");
  EXPECT_EQ(inner["args"]["bytes"], 1024);
  EXPECT_EQ(inner["pid"], 2);
  EXPECT_EQ(inner["tid"], outer["tid"]);
  EXPECT_EQ(outer["args"], json::object());
  const auto end = [](const json& e) { return e["ts"].get<double>() + e["dur"].get<double>(); };
  EXPECT_LE(outer["ts"].get<double>(), inner["ts"].get<double>());
  EXPECT_GE(end(outer) + 0.002, end(inner)) << "times are written to the nanosecond";
  EXPECT_GE(outer["ts"].get<double>() + 0.001, before) << "the host's monotonic clock";
  EXPECT_EQ(events(trace, "M")[0]["args"]["name"], "rank 2");
}

TEST(Trace, StaysValidJsonWhateverTheNames) {
  const auto trace = traced([] {
    const Span span{"quote\" slash\\ newline\n \x01", "not utf-8: \xff\xc3"};
    Trace::counter("inf", std::numeric_limits<double>::infinity());
    Trace::counter("nan", std::numeric_limits<double>::quiet_NaN());
    Trace::counter("loss", 0.25);
    Trace::name_thread("main \"thread\"");
  });
  EXPECT_EQ(events(trace, "X")[0]["name"], "quote\" slash\\ newline\n \x01");
  const auto counters = events(trace, "C");
  ASSERT_EQ(counters.size(), 3U);
  EXPECT_TRUE(counters[0]["args"]["value"].is_null());
  EXPECT_EQ(counters[2]["args"]["value"], 0.25);
  EXPECT_EQ(events(trace, "M")[1]["args"]["name"], "main \"thread\"");
}

TEST(Trace, ThreadsThatDiedKeepTheirEventsInTheirOwnLane) {
  const auto trace = traced([] {
    for (int t = 0; t < 3; ++t) std::thread([] { const Span span{"work"}; }).join();
    std::thread([] {}).join();
  });
  std::set<int> lanes;
  for (const auto& e : events(trace, "X")) lanes.insert(e["tid"].get<int>());
  EXPECT_EQ(lanes.size(), 3U);
}

TEST(Trace, RecordsFromManyThreadsWhileItStops) {
  const TempDir dir;
  std::atomic<bool> enough{false};
  Trace::start(dir.file("a.json"), Rank{0});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!enough) const Span span{"busy"};
    });
  { const Span span{"mine"}; }
  Trace::stop();
  Trace::start(dir.file("b.json"), Rank{0});
  Trace::stop();
  enough = true;
  for (auto& thread : threads) thread.join();
  EXPECT_GE(events(json::parse(read_file(dir.file("a.json"), 1_GiB)), "X").size(), 1U);
  EXPECT_EQ(json::parse(read_file(dir.file("b.json"), 1_GiB))["displayTimeUnit"], "ms");
}

TEST(Trace, ASpanThatSpansTwoTracesBelongsToNeither) {
  const TempDir dir;
  Trace::start(dir.file("a.json"), Rank{0});
  auto span = std::make_unique<Span>("long");
  Trace::stop();
  Trace::start(dir.file("b.json"), Rank{0});
  span.reset();
  Trace::stop();
  for (const char* name : {"a.json", "b.json"}) EXPECT_TRUE(events(json::parse(read_file(dir.file(name))), "X").empty()) << name;
}

TEST(Trace, BoundsItsMemoryAndCountsWhatItDropped) {
  constexpr int kSpans = 70'000;
  const auto trace = traced([] {
    for (int i = 0; i < kSpans; ++i) const Span span{"s"};
  });
  const auto kept = events(trace, "X").size();
  EXPECT_LT(kept, static_cast<std::size_t>(kSpans));
  EXPECT_EQ(kept + trace["otherData"]["dropped"].get<std::size_t>(), static_cast<std::size_t>(kSpans));
}

TEST(Trace, ASnapshotIsACopyOfWhatWasRecordedSoFar) {
  EXPECT_TRUE(Trace::snapshot().empty());
  std::vector<TraceThread> seen;
  const auto trace = traced([&] {
    Trace::name_thread("main");
    { const Span span{"step", "7", 64}; }
    seen = Trace::snapshot();
    { const Span span{"later"}; }
  });
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].name, "main");
  ASSERT_EQ(seen[0].events.size(), 1U);
  EXPECT_EQ(seen[0].events[0].name, "step");
  EXPECT_EQ(seen[0].events[0].bytes, 64U);
  EXPECT_GE(seen[0].events[0].length_ns, 0);
  EXPECT_EQ(events(trace, "X").size(), 2U) << "it took nothing away";
}

TEST(Trace, TheFileSaysHowThisClockStandsToTheReference) {
  Trace::set_clock_offset(-1'500);
  EXPECT_EQ(traced([] {})["otherData"]["offset_us"], -1.5);
  Trace::set_clock_offset(0);
  EXPECT_EQ(traced([] {})["otherData"]["offset_us"], 0.0);
}

TEST(Trace, ABadPathIsKnownAtTheStart) {
  const auto error = failure_of([] { Trace::start("/no/such/folder/trace.json", Rank{0}); });
  EXPECT_EQ(error.kind, Kind::system);
  EXPECT_THAT(error.what, HasSubstr("/no/such/folder/trace.json"));
  EXPECT_FALSE(Trace::on());
}

TEST(Trace, OneAtATime) {
  const TempDir dir;
  Trace::start(dir.file("a.json"), Rank{0});
  EXPECT_EQ(failure_of([&] { Trace::start(dir.file("b.json"), Rank{0}); }).kind, Kind::usage);
  Trace::stop();
}

TEST(Trace, AnUnstoppedTraceIsStillAValidFile) {
  const TempDir dir;
  Trace::start(dir.file("a.json"), kNoRank);
  EXPECT_EQ(events(json::parse(read_file(dir.file("a.json"))), "M")[0]["args"]["name"], "cohort");
  Trace::stop();
}

}  // namespace
}  // namespace cohort
