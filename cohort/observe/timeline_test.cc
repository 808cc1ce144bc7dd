#include "cohort/observe/timeline.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"

namespace cohort::observe {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Timeline, TheOffsetComesFromTheShortestRoundTrip) {
  // The other clock is 1000 ahead. The second message was delayed on its way there by 700: half of that would be the error.
  const std::vector<PingPong> samples{{0, 1000 + 850, 1000 + 860, 960}, {2000, 3000 + 40, 3000 + 50, 2000 + 90}};
  const auto found = clock_offset(samples);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->offset_ns, 1000);
  EXPECT_EQ(found->uncertainty_ns, 40);
}

TEST(Timeline, TheTruthIsWithinTheUncertainty) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto pick = [&](std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random); };
    const auto truth = pick(-1'000'000'000'000, 1'000'000'000'000);
    std::vector<PingPong> samples;
    for (int i = 0; i < 10; ++i) {
      const auto t0 = pick(0, 1'000'000'000'000'000);
      const auto there = t0 + pick(1, 100'000);
      const auto answered = there + pick(0, 10'000);
      samples.push_back({t0, there + truth, answered + truth, answered + pick(1, 100'000)});
    }
    const auto found = clock_offset(samples);
    ASSERT_TRUE(found);
    EXPECT_LE(std::abs(found->offset_ns - truth), found->uncertainty_ns + 1);
  }
}

TEST(Timeline, ImpossibleSamplesCountForNothing) {
  EXPECT_FALSE(clock_offset({}));
  const std::vector<PingPong> odd{{10, 0, 0, 5}, {0, 0, 100, 50}, {0, 10, 5, 20}};
  EXPECT_FALSE(clock_offset(odd));
}

TraceEvent span(std::int64_t start, std::int64_t length) { return {.name = "s", .start_ns = start, .length_ns = length}; }

TEST(Timeline, SpansThatNestShareALane) {
  const std::vector<TraceEvent> nested{span(2, 3), span(0, 10), span(0, 4), span(5, 5), span(10, 2), {.name = "c", .start_ns = 1}};
  EXPECT_THAT(nesting_lanes(nested), ElementsAre(1, 0, 0, 0, 0, 0)) << "2..5 overlaps the end of 0..4";
  EXPECT_TRUE(nesting_lanes({}).empty());
}

TEST(Timeline, InEveryLaneSpansNestOrAreApart) {
  std::mt19937 random(11);
  std::vector<TraceEvent> events;
  for (int i = 0; i < 300; ++i)
    events.push_back(span(static_cast<std::int64_t>(random() % 1000), static_cast<std::int64_t>(random() % 40)));
  const auto lanes = nesting_lanes(events);
  for (std::size_t a = 0; a < events.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      if (lanes[a] != lanes[b]) continue;
      const auto [s, t] = std::pair{events[a].start_ns, events[a].start_ns + events[a].length_ns};
      const auto [u, v] = std::pair{events[b].start_ns, events[b].start_ns + events[b].length_ns};
      EXPECT_TRUE(t <= u || v <= s || (s <= u && v <= t) || (u <= s && t <= v)) << s << ".." << t << " and " << u << ".." << v;
    }
}

std::vector<json> picked(const json& trace, const std::string& ph) {
  std::vector<json> out;
  for (const auto& e : trace["traceEvents"])
    if (e["ph"] == ph) out.push_back(e);
  return out;
}

TEST(Timeline, WritesOneRowPerStreamOnOneClock) {
  const std::vector<RankTrace> ranks{
      {.rank = Rank{0},
       .streams = {{"main", {{.name = "step", .detail = "7 \"x\"", .start_ns = 5'000'000, .length_ns = 1'500, .bytes = 64}}}}},
      {.rank = Rank{1},
       .host = "node\\7",
       .offset_ns = 4'000'000,
       .streams = {{"a", {span(1'000'001, 10), span(1'000'005, 20)}}, {"b", {{.name = "loss", .start_ns = 1'000'000, .value = 0.5}}}}}};
  const auto trace = json::parse(chrome_trace(ranks));
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  const auto spans = picked(trace, "X");
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[0]["ts"], 0.0) << "the first event is the origin";
  EXPECT_EQ(spans[0]["dur"], 1.5);
  EXPECT_EQ(spans[0]["args"], json::parse(R"({"name":"7 \"x\"","bytes":64})"));
  EXPECT_EQ(spans[1]["ts"], 0.001);
  EXPECT_EQ(spans[1]["pid"], 1);
  EXPECT_NE(spans[1]["tid"], spans[2]["tid"]) << "they overlap";
  EXPECT_EQ(picked(trace, "C")[0]["args"]["value"], 0.5);
  std::map<std::string, int> names;
  for (const auto& m : picked(trace, "M"))
    if (m["args"].contains("name")) ++names[m["args"]["name"].get<std::string>()];
  EXPECT_THAT(names, ElementsAre(testing::Pair("a", 1), testing::Pair("a (2)", 1), testing::Pair("b", 1), testing::Pair("main", 1),
                                 testing::Pair("rank 0", 1), testing::Pair("rank 1 on node\\7", 1)));
}

TEST(Timeline, StaysValidWhateverComes) {
  EXPECT_TRUE(json::accept(chrome_trace({})));
  const std::vector<RankTrace> odd{
      {.rank = kNoRank,
       .host = "\xff",
       .streams = {{"\n", {{.name = "nan\"", .start_ns = -3, .value = std::numeric_limits<double>::quiet_NaN()}}}, {"none", {}}}}};
  EXPECT_TRUE(json::accept(chrome_trace(odd)));
}

// What rank r recorded, through the real recorder.
std::string recorded(const TempDir& dir, int r, std::int64_t offset_ns) {
  const auto path = dir.file("rank" + std::to_string(r) + ".json");
  Trace::set_clock_offset(offset_ns);
  Trace::start(path, Rank{r});
  Trace::name_thread("main");
  {
    const Span outer{"step"};
    const Span inner{"all_reduce", "grad", 1024};
  }
  Trace::counter("loss", 0.5);
  Trace::stop();
  Trace::set_clock_offset(0);
  return path;
}

TEST(Timeline, MergesFilesOfTheRecorder) {
  const TempDir dir;
  const std::vector<std::string> paths{recorded(dir, 0, 0), recorded(dir, 1, 5'000'000'000)};
  merge_files(paths, dir.file("all.json"));
  const auto spans = picked(json::parse(read_file(dir.file("all.json"))), "X");
  ASSERT_EQ(spans.size(), 4U);
  for (int r = 0; r < 2; ++r) {
    const auto& inner = spans[static_cast<std::size_t>(2 * r)];
    const auto& outer = spans[static_cast<std::size_t>(2 * r + 1)];
    EXPECT_EQ(inner["pid"], r);
    EXPECT_EQ(inner["args"]["bytes"], 1024);
    EXPECT_EQ(inner["tid"], outer["tid"]) << "what nested still nests";
  }
  EXPECT_GT(spans[2]["ts"].get<double>() - spans[0]["ts"].get<double>(), 4.9e6) << "rank 1's clock is 5 s behind";
  merge_files(paths, dir.file("wall.json"), ClockBy::wall);
  const auto by_wall = picked(json::parse(read_file(dir.file("wall.json"))), "X");
  EXPECT_LT(by_wall[2]["ts"].get<double>() - by_wall[0]["ts"].get<double>(), 4.9e6) << "the system clock knows of no offset";
}

TEST(Timeline, FollowsNoLinkToATraceAndWaitsForNoFifo) {
  const TempDir dir;
  std::filesystem::create_symlink(recorded(dir, 0, 0), dir.file("link"));
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  for (const char* name : {"link", "fifo"}) {
    const auto error = failure_of([&] { merge_files(std::vector{dir.file(name)}, dir.file("all.json")); });
    EXPECT_EQ(error.kind, Kind::corrupt);
    EXPECT_THAT(error.what, HasSubstr(dir.file(name)));
  }
}

TEST(Timeline, AFileThatIsNoTraceIsNamed) {
  const TempDir dir;
  for (const char* text :
       {"", "[]", "{}", "{\"traceEvents\":[{\"ph\":\"X\"}]}", "{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"a\",\"ts\":1e300,\"dur\":1}]}",
        "{\"traceEvents\":[],\"otherData\":{\"rank\":\"x\"}}", "{\"traceEvents\":[],\"otherData\":{\"offset_us\":1e200}}",
        "{\"traceEvents\":[[[[[[[[[[[[[[[[[[[[["}) {
    const auto error = failure_of([&] { parse_rank_trace(text, "some.json"); });
    EXPECT_EQ(error.kind, Kind::corrupt) << text;
    EXPECT_THAT(error.what, HasSubstr("some.json"));
  }
  const std::vector<std::string> twice{recorded(dir, 3, 0), recorded(dir, 3, 0)};
  EXPECT_THAT(failure_of([&] { merge_files(twice, dir.file("x")); }).what, HasSubstr("both of rank 3"));
}

}  // namespace
}  // namespace cohort::observe
