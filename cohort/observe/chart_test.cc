#include "cohort/observe/chart.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "cohort/base/failure_of.h"

namespace cohort::observe {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const double kNan = std::numeric_limits<double>::quiet_NaN();

Series wave(std::size_t points) {
  Series s{.name = "wave", .x = {}, .y = {}};
  for (std::size_t i = 0; i < points; ++i) {
    s.x.push_back(static_cast<double>(i));
    s.y.push_back(std::sin(0.01 * static_cast<double>(i)));
  }
  return s;
}

nlohmann::json data_of(const std::string& html) {
  const std::string open = "<script type=\"application/json\">";
  const auto from = html.find(open) + open.size();
  return nlohmann::json::parse(html.substr(from, html.find("</script>") - from));
}

TEST(Chart, ThinningKeepsEndsSpikesAndGaps) {
  auto s = wave(100'000);
  s.y[54'321] = 77;
  s.y[70'000] = kNan;
  const auto thin = downsampled(s, 600);
  EXPECT_LE(thin.x.size(), 605U);
  EXPECT_GE(thin.x.size(), 500U);
  EXPECT_EQ(thin.x.front(), 0);
  EXPECT_EQ(thin.x.back(), 99'999);
  EXPECT_THAT(thin.y, Contains(77));
  EXPECT_EQ(std::count_if(thin.y.begin(), thin.y.end(), [](double v) { return std::isnan(v); }), 1);
  EXPECT_TRUE(std::is_sorted(thin.x.begin(), thin.x.end()));
}

TEST(Chart, AShortSeriesStaysAsItIsInTheOrderOfX) {
  const auto thin = downsampled({.name = "s", .x = {3, 1, kNan, 2}, .y = {30, 10, 0, 20}, .wall = {3, 1, 9, 2}}, 600);
  EXPECT_THAT(thin.x, ElementsAre(1, 2, 3));
  EXPECT_THAT(thin.y, ElementsAre(10, 20, 30));
  EXPECT_THAT(thin.wall, ElementsAre(1, 2, 3));
  EXPECT_THAT(failure_of([] { downsampled({.name = "odd", .x = {1}, .y = {}}, 10); }).what, HasSubstr("'odd'"));
}

TEST(Chart, MeansAreOfStretchesAndGapsStayGaps) {
  const auto mean = averaged({.name = "s", .x = {0, 2, 4, 6, 8, 10}, .y = {1, 3, kNan, 5, kNan, kNan}, .wall = {0, 1, 2, 3, 4, 5}}, 3);
  EXPECT_THAT(mean.x, ElementsAre(1, 5, 9));
  EXPECT_THAT(mean.wall, ElementsAre(0.5, 2.5, 4.5));
  EXPECT_THAT(mean.y, ElementsAre(2, 5, testing::IsNan()));
  EXPECT_EQ(averaged({.name = "short", .x = {1}, .y = {2}}, 3).x.size(), 1U);
  EXPECT_TRUE(averaged({.name = "none", .x = {}, .y = {}}, 3).x.empty());
}

TEST(Chart, ALongSeriesIsAMeanBeforeItsRange) {
  const auto html = chart_html({.title = "t", .series = {wave(5000)}}, XAxis::step);
  EXPECT_THAT(html, HasSubstr("class=\"line range s0\""));
  EXPECT_EQ(data_of(html)["series"][0]["x"].size(), 200U);
  EXPECT_THAT(chart_html({.title = "t", .series = {wave(500)}}, XAxis::step), Not(HasSubstr("range")));
}

TEST(Chart, TicksAreRoundNumbersInsideTheRange) {
  EXPECT_THAT(nice_ticks(0, 1, 5), ElementsAre(0, 0.2, 0.4, testing::DoubleNear(0.6, 1e-9), 0.8, 1));
  EXPECT_THAT(nice_ticks(3, 97, 5), ElementsAre(20, 40, 60, 80));
  EXPECT_THAT(nice_ticks(-1, 1, 4), ElementsAre(-1, -0.5, 0, 0.5, 1));
  EXPECT_THAT(nice_ticks(5, 5, 4), ElementsAre(5));
  for (const double width : {1e-9, 0.7, 3.0, 12345.0, 8e12})
    for (const double t : nice_ticks(0.1 * width, width, 5)) EXPECT_TRUE(t >= 0.099 * width && t <= 1.001 * width);
  EXPECT_THAT(log_ticks(0.9, 25), ElementsAre(testing::DoubleNear(1, 1e-9), 2, 5, 10, 20));
  EXPECT_EQ(log_ticks(1e-6, 1).size(), 7U);
  EXPECT_LE(log_ticks(1e-30, 1e30).size(), 10U);
}

TEST(Chart, LabelsAreShort) {
  EXPECT_EQ(tick_label(0.1 + 0.2), "0.3");
  EXPECT_EQ(tick_label(20000), "20k");
  EXPECT_EQ(tick_label(2500), "2500");
  EXPECT_EQ(tick_label(-1.5e6), "-1.5M");
  EXPECT_EQ(tick_label(1e-5), "1e-05");
  EXPECT_EQ(tick_label(0), "0");
}

TEST(Chart, DrawsALineAndCarriesItsNumbers) {
  const Chart chart{.title = "loss <b>",
                    .series = {{.name = "</script>\"", .x = {0, 10, 20, 30}, .y = {4, 2, kNan, 1}, .wall = {0, 90, 180, 270}}},
                    .unit = "a<b"};
  const auto html = chart_html(chart, XAxis::step);
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_THAT(html, HasSubstr("a&lt;b"));
  const auto data = data_of(html);
  EXPECT_EQ(data["series"][0]["name"], "</script>\"");
  EXPECT_EQ(data["series"][0]["y"], nlohmann::json::parse("[4,2,null,1]"));
  const auto path = html.substr(html.find(" d=\"M"));
  EXPECT_EQ(std::count(path.begin(), path.begin() + static_cast<long>(path.find("/>")), 'M'), 2) << "a gap where there is no value";
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  ASSERT_TRUE(has_wall(chart));
  const auto by_wall = chart_html(chart, XAxis::wall);
  EXPECT_THAT(by_wall, HasSubstr("wall time (min)"));
  EXPECT_EQ(data_of(by_wall)["series"][0]["x"], nlohmann::json::parse("[0,1.5,3,4.5]"));
}

TEST(Chart, UnusualSeriesAreDrawnToo) {
  for (const bool log_y : {false, true})
    for (const auto& s : std::vector<Series>{{"none", {}, {}},
                                             {"nan", {1, 2}, {kNan, kNan}},
                                             {"point", {5}, {0}},
                                             {"flat", {1, 2}, {3, 3}},
                                             {"negative", {1, 2}, {-3, -1e300}}}) {
      const auto html = chart_html({.title = "t", .series = {s}, .log_y = log_y}, XAxis::step);
      EXPECT_THAT(html, Not(HasSubstr("nan "))) << s.name;
      EXPECT_THAT(html, Not(HasSubstr("inf"))) << s.name;
      EXPECT_TRUE(data_of(html).is_object());
    }
  EXPECT_THAT(chart_html({.title = "t", .series = {}}, XAxis::step), HasSubstr("no values"));
}

}  // namespace
}  // namespace cohort::observe
