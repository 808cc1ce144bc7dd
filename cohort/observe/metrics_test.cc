#include "cohort/observe/metrics.h"

#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"

namespace cohort::observe {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<json> lines_of(const std::string& path) {
  std::vector<json> out;
  std::istringstream in(read_file(path));
  for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
  return out;
}

TEST(Metrics, OneObjectALineInTheOrderGiven) {
  const std::vector<Field> fields{{"step", 120}, {"loss", 0.5F}, {"seen", std::size_t{7}}, {"done", false}, {"why", "a \"b\"\n"}};
  EXPECT_EQ(metrics_line(1.25, fields),
            "{\"time\":1.250000,\"step\":120,\"loss\":0.5,\"seen\":7,\"done\":false,\"why\":\"a \\\"b\\\"\\n\"}\n");
  EXPECT_EQ(metrics_line(0, {}), "{\"time\":0.000000}\n");
}

TEST(Metrics, NonFiniteValuesAreNullAndNamedBeside) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<Field> fields{{"loss", std::numeric_limits<double>::quiet_NaN()}, {"norm", -inf}, {"scale", inf}, {"lr", 0.1}};
  const auto line = json::parse(metrics_line(0, fields));
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_EQ(line["lr"], 0.1);
  EXPECT_EQ(line["nonfinite"], json::parse(R"({"loss":"nan","norm":"-inf","scale":"inf"})"));
}

TEST(Metrics, NamesAreGivenOnceAndOursAreKept) {
  const std::vector<Field> twice{{"loss", 1}, {"loss", 2}};
  EXPECT_THAT(failure_of([&] { metrics_line(0, twice); }).what, HasSubstr("'loss' is given twice"));
  const std::vector<Field> ours{{"time", 1}};
  EXPECT_EQ(failure_of([&] { metrics_line(0, ours); }).kind, Kind::usage);
}

TEST(Metrics, EveryLineIsThereAtOnceAndARestartGoesOn) {
  const TempDir dir;
  const auto path = dir.file("metrics.jsonl");
  double now = 10;
  {
    MetricsFile metrics(path, [&] { return now; });
    metrics.write({{"step", 1}});
    EXPECT_EQ(lines_of(path).size(), 1U);
  }
  write_file_atomically(path, read_file(path) + "{\"time\":11,\"st");  // the job was killed here
  now = 20;
  MetricsFile metrics(path, [&] { return now; });
  metrics.write({{"step", 2}});
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["time"], 10);
  EXPECT_EQ(lines[1]["step"], 2);
}

TEST(Metrics, AFullDiskIsNoReasonToStop) {
  MetricsFile metrics("/dev/full");
  for (int step = 0; step < 3; ++step) EXPECT_NO_THROW(metrics.write({{"step", step}}));
  EXPECT_EQ(metrics.lost(), 3U);
}

TEST(Metrics, LinesOfManyThreadsDoNotMix) {
  const TempDir dir;
  MetricsFile metrics(dir.file("m"));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&metrics, t] {
      for (int i = 0; i < 100; ++i) metrics.write({{"thread", t}, {"i", i}});
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(lines_of(dir.file("m")).size(), 400U);
}

}  // namespace
}  // namespace cohort::observe
