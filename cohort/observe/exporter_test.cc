#include "cohort/observe/exporter.h"

#include <gmock/gmock.h>

namespace cohort::observe {
namespace {

using testing::HasSubstr;

TEST(Exporter, HasTheMetricsAndAPageThatPointsToThem) {
  Registry registry;
  const auto routes = exporter_routes(registry, "cohort job demo");
  registry.gauge("up", "").set(1);  // what is registered later is shown too
  const auto metrics = routes.at("/metrics")({.path = "/metrics"});
  EXPECT_EQ(metrics.type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(metrics.body, HasSubstr("\nup 1\n"));
  const auto page = routes.at("/")({.path = "/"});
  EXPECT_THAT(page.body, HasSubstr("cohort job demo"));
  EXPECT_THAT(page.body, HasSubstr("/metrics"));
}

}  // namespace
}  // namespace cohort::observe
