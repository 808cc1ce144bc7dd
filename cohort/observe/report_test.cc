#include "cohort/observe/report.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"

namespace cohort::observe {
namespace {

using testing::HasSubstr;
using testing::Not;

Report sample() {
  Report r{.title = "mlp on fashion-mnist", .subtitle = "4 ranks on one host", .highlights = {{"test accuracy", "88.4 %"}}};
  r.summary.columns = {{"epoch"}, {"loss"}, {"time", "s"}};
  r.summary.add({"1", "0.412", "12.1"});
  r.charts = {{.title = "train loss", .series = {{.name = "loss", .x = {0, 1, 2}, .y = {2, 1, 0.5}, .wall = {0, 10, 20}}}},
              {.title = "test accuracy", .series = {{.name = "accuracy", .x = {1, 2}, .y = {80, 88.4}}}, .unit = "%", .x_name = "epoch"}};
  r.phases = {{"rank 0", {{8, 1, 1, 0}}}, {"rank 1", {{6, 1, 3, 0}}}};
  r.ranks.columns = {{"rank"}, {"host", "", Align::left}};
  r.ranks.add({"0", "alpha"});
  r.config = "optimizer: sgd\nlr: 0.1\n";
  return r;
}

std::size_t count(const std::string& text, std::string_view what) {
  std::size_t n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Report, HoldsEverythingThatWasGiven) {
  const auto html = report_html(sample());
  for (const char* part : {"<title>mlp on fashion-mnist</title>", "88.4 %", "0.412", "train loss", "test accuracy", "rank 1", "alpha",
                           "optimizer: sgd\nlr: 0.1"})
    EXPECT_THAT(html, HasSubstr(part));
  EXPECT_EQ(count(html, "<svg "), 3U) << "the curve that knows its times is drawn over both";
  EXPECT_THAT(html, HasSubstr("title=\"wait 20.0 % (4 s)\"")) << "all ranks together";
  EXPECT_EQ(count(html, "class=\"bar\""), 3U);
}

TEST(Report, LoadsNothingFromAnywhere) {
  const auto html = report_html(sample());
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  for (const char* way : {"https:", "src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest"})
    EXPECT_THAT(html, Not(HasSubstr(way))) << way;
  EXPECT_EQ(count(html, "http:"), 1U) << "the name of SVG, which nobody loads";
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
}

TEST(Report, TextFromOutsideStaysText) {
  const std::string evil = "</title></script><script>alert(1)</script>\"'&\xff";
  Report r = sample();
  r.title = r.subtitle = r.config = evil;
  r.highlights = {{evil, evil}};
  r.summary.columns[0] = {evil, evil};
  r.summary.rows[0][0] = r.ranks.rows[0][0] = evil;
  r.charts[0].title = r.charts[0].unit = r.charts[0].x_name = r.charts[0].series[0].name = evil;
  r.phases[0].name = evil;
  const auto html = report_html(r);
  EXPECT_EQ(count(html, "<script>"), 1U) << "ours";
  EXPECT_EQ(count(html, "</title>"), 1U);
  EXPECT_THAT(html, Not(HasSubstr("\xff")));
}

TEST(Report, WhatIsEmptyIsLeftOut) {
  const auto html = report_html({.title = "empty"});
  for (const char* part : {"<h2>", "<table", "<svg ", "<script>", "<details"}) EXPECT_THAT(html, Not(HasSubstr(part))) << part;
  Report without_times = sample();
  without_times.charts[0].series[0].wall.clear();
  EXPECT_THAT(report_html(without_times), Not(HasSubstr("id=\"by-wall\"")));
}

TEST(Report, StaysSmallHoweverLongTheRun) {
  Report r = sample();
  auto& s = r.charts[0].series[0];
  s = {.name = "loss", .x = {}, .y = {}, .wall = {}};
  for (int i = 0; i < 200'000; ++i) {
    s.x.push_back(i);
    s.y.push_back(1.0 / (1 + i % 977));
    s.wall.push_back(0.01 * i);
  }
  EXPECT_LT(report_html(r).size(), 120'000U);
}

TEST(Report, IsWrittenAsAWhole) {
  const TempDir dir;
  write_report(dir.file("report.html"), sample());
  EXPECT_EQ(read_file(dir.file("report.html")), report_html(sample()));
  Report odd = sample();
  odd.charts[0].series[0].x.pop_back();
  EXPECT_EQ(failure_of([&] { write_report(dir.file("report.html"), odd); }).kind, Kind::usage);
  EXPECT_EQ(read_file(dir.file("report.html")), report_html(sample())) << "the old page stays";
}

}  // namespace
}  // namespace cohort::observe
