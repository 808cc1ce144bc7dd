#include "cohort/observe/prometheus.h"

#include <gmock/gmock.h>

#include <limits>
#include <thread>

#include "cohort/base/failure_of.h"

namespace cohort::observe {
namespace {

using testing::HasSubstr;

TEST(Prometheus, WritesFamiliesOnceWithTheirSamples) {
  Registry registry;
  registry.gauge("cohort_loss", "Loss of the\nlast step \\ \"here\"", {{"rank", "1"}, {"host", "a\"b\\c\nd"}}).set(0.25);
  registry.gauge("cohort_loss", "", {{"rank", "0"}}).set(-1.5);
  registry.counter("cohort_steps_total", "Steps").add(3);
  EXPECT_EQ(registry.text(),
            "# HELP cohort_loss Loss of the\\nlast step \\\\ \"here\"\n"
            "# TYPE cohort_loss gauge\n"
            "cohort_loss{host=\"a\\\"b\\\\c\\nd\",rank=\"1\"} 0.25\n"
            "cohort_loss{rank=\"0\"} -1.5\n"
            "# HELP cohort_steps_total Steps\n"
            "# TYPE cohort_steps_total counter\n"
            "cohort_steps_total 3\n");
}

TEST(Prometheus, HistogramBucketsAreCumulativeAndEndInInf) {
  Registry registry;
  auto& h = registry.histogram("step_seconds", "Time of a step", {0.1, 1}, {{"rank", "0"}});
  for (const double v : {0.05, 0.1, 0.5, 7.0}) h.observe(v);
  EXPECT_THAT(registry.text(), HasSubstr("step_seconds_bucket{rank=\"0\",le=\"0.1\"} 2\n"
                                         "step_seconds_bucket{rank=\"0\",le=\"1\"} 3\n"
                                         "step_seconds_bucket{rank=\"0\",le=\"+Inf\"} 4\n"
                                         "step_seconds_sum{rank=\"0\"} 7.65\n"
                                         "step_seconds_count{rank=\"0\"} 4\n"));
  registry.histogram("bare", "", {}).observe(1);
  EXPECT_THAT(registry.text(), HasSubstr("bare_bucket{le=\"+Inf\"} 1\nbare_sum 1\nbare_count 1\n"));
}

TEST(Prometheus, TheSameNameAndLabelsAreTheSameMetric) {
  Registry registry;
  auto& a = registry.counter("c", "", {{"x", "1"}, {"y", "2"}});
  EXPECT_EQ(&a, &registry.counter("c", "", {{"y", "2"}, {"x", "1"}}));
  EXPECT_NE(&a, &registry.counter("c", "", {{"x", "1"}}));
}

TEST(Prometheus, NonFiniteValuesAreWritten) {
  Registry registry;
  registry.gauge("a", "").set(std::numeric_limits<double>::quiet_NaN());
  registry.gauge("b", "").set(-std::numeric_limits<double>::infinity());
  EXPECT_THAT(registry.text(), HasSubstr("a NaN\n"));
  EXPECT_THAT(registry.text(), HasSubstr("b -Inf\n"));
}

TEST(Prometheus, RefusesWhatTheFormatDoesNotAllow) {
  Registry registry;
  registry.gauge("taken", "");
  registry.histogram("h", "", {1});
  registry.gauge("g_sum", "");
  const auto kind = [](auto call) { return failure_of(call).kind; };
  EXPECT_EQ(kind([&] { registry.gauge("1x", ""); }), Kind::usage);
  EXPECT_EQ(kind([&] { registry.gauge("", ""); }), Kind::usage);
  EXPECT_EQ(kind([&] { registry.gauge("grüße", ""); }), Kind::usage);
  EXPECT_EQ(kind([&] { registry.gauge("a", "", {{"le", "1"}}); }), Kind::usage);
  EXPECT_EQ(kind([&] { registry.gauge("a", "", {{"__x", "1"}}); }), Kind::usage);
  EXPECT_EQ(kind([&] { registry.gauge("a", "", {{"x", "1"}, {"x", "2"}}); }), Kind::usage);
  EXPECT_EQ(kind([&] { registry.gauge("h_count", ""); }), Kind::usage);
  EXPECT_EQ(kind([&] { registry.histogram("g", "", {1}); }), Kind::usage);
  EXPECT_EQ(kind([&] { registry.histogram("h", "", {2}); }), Kind::usage);
  EXPECT_EQ(kind([&] { registry.histogram("i", "", {2, 1}); }), Kind::usage);
  EXPECT_EQ(kind([&] { registry.counter("d", "").add(-1); }), Kind::usage);
  EXPECT_THAT(failure_of([&] { registry.counter("taken", ""); }).what, HasSubstr("'taken' is a gauge"));
}

TEST(Prometheus, CountsFromManyThreads) {
  Registry registry;
  auto& total = registry.counter("total", "");
  auto& spread = registry.histogram("spread", "", {0.5});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) total.add(), spread.observe(i % 2);
    });
  for (int i = 0; i < 20; ++i) registry.text();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(total.value(), 4000);
  EXPECT_EQ(spread.state().cumulative.back(), 4000U);
  EXPECT_EQ(spread.state().sum, 2000);
}

}  // namespace
}  // namespace cohort::observe
