#include "cohort/bench/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "cohort/base/bytes.h"
#include "cohort/bench/calibrate.h"
#include "cohort/bench/results.h"
#include "cohort/bench/testing.h"
#include "cohort/net/transport/loopback.h"

namespace cohort::bench {
namespace {

using testing::HasSubstr;

// Ranks as threads: what a worker process does, without processes.
std::string run_ranks(int ranks, const BenchOptions& o) {
  auto meshes = net::loopback_world(ranks);
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      const auto at = static_cast<std::size_t>(r);
      try {
        const auto world = collective::open(std::move(meshes[at]), {.timeout = 30s});
        texts[at] = run_task(*world, o);
      } catch (const Failure& failure) {
        texts[at] = failure.what();
      }
    });
  for (auto& thread : threads) thread.join();
  for (std::size_t r = 1; r < texts.size(); ++r) EXPECT_EQ(texts[r], "");
  return texts[0];
}

TEST(Worker, MeasuresAndVerifiesEveryCollective) {
  for (const char* collective : kBenchCollectives) {
    auto o = parse({collective, "--size", "4,10000", "--repeats", "2", "--seconds", "0.001"});
    o.worker_task = "measure";
    const auto lines = parse_lines(run_ranks(3, o));
    ASSERT_EQ(lines.size(), 2u) << collective;
    EXPECT_GT(lines[1].median_us, 0) << collective;
    EXPECT_EQ(lines[1].limit_us > 0, std::string_view(collective) != "barrier") << collective;
  }
}

TEST(Worker, VerifiesEveryTypeAndOperator) {
  for (const char* dtype : {"f16", "bf16", "f32", "f64", "i8", "u8", "i32", "i64", "bool"})
    for (const char* op : {"sum", "average", "min", "max", "product"}) {
      if (!collective::reducible(*collective::dtype_named(dtype), *collective::op_named(op))) continue;
      auto o = parse({"--size", "1000", "--repeats", "1", "--seconds", "0.001", "--buffers", "any", "--dtype", dtype, "--op", op});
      o.worker_task = "measure";
      EXPECT_EQ(parse_lines(run_ranks(2, o)).size(), 1u) << dtype << ' ' << op;
    }
}

TEST(Worker, NamesTheRowItForcedAndExplainsTheOthers) {
  auto o = parse({"--size", "64KiB", "--repeats", "1", "--algorithm", "ring"});
  o.worker_task = "measure";
  EXPECT_EQ(parse_lines(run_ranks(2, o)).at(0).algorithm, "ring");
  o.algorithms.clear();
  o.worker_task = "explain";
  const auto text = run_ranks(2, o);
  for (const auto* row : collective::all_reduce_rows()) EXPECT_THAT(text, HasSubstr(std::string(row->name)));
}

TEST(Calibrate, FindsTheConstantsThatMadeTheTimes) {
  collective::Calibration truth;
  truth.sync_s = 1.5e-6, truth.crowded_s = 3e-6, truth.update_rate = 31e9, truth.stage_rate = 7e9;
  truth.link_s = 2e-6, truth.link_rate = 3e9, truth.reduce_rate = 9e9;
  const auto sample = [&](const char* row, std::size_t bytes, int ranks, bool in_place) {
    const collective::Shape shape{bytes, ranks, 2, true, in_place};
    return TimedRow{row, shape, collective::all_reduce_named(row).cost(shape, truth)->count()};
  };
  const std::vector<TimedRow> uncrowded{sample("zero_copy", 64, 2, true),           sample("zero_copy", 32_MiB, 2, true),
                                        sample("staged", 4_MiB, 2, false),          {"kernel", {4_MiB, 2, 2, true, true}, 4_MiB / 9e9},
                                        sample("recursive_doubling", 64, 2, false), sample("recursive_doubling", 4_MiB, 2, false)};
  const Fit f = fit(uncrowded, {sample("zero_copy", 64, 4, true)}, {});
  EXPECT_THAT(f.kept, testing::IsEmpty());
  EXPECT_NEAR(f.constants.sync_s / truth.sync_s, 1, 0.02);
  EXPECT_NEAR(f.constants.crowded_s / truth.crowded_s, 1, 0.02);
  EXPECT_NEAR(f.constants.update_rate / truth.update_rate, 1, 0.02);
  EXPECT_NEAR(f.constants.stage_rate / truth.stage_rate, 1, 0.02);
  EXPECT_NEAR(f.constants.link_s / truth.link_s, 1, 0.05);
  EXPECT_NEAR(f.constants.link_rate / truth.link_rate, 1, 0.05);
  EXPECT_NEAR(f.constants.reduce_rate / truth.reduce_rate, 1, 1e-9);
}

TEST(Calibrate, KeepsAndNamesWhatItCouldNotMeasure) {
  const Fit f = fit({}, {}, {});
  EXPECT_EQ(f.kept.size(), 7u);
  EXPECT_DOUBLE_EQ(f.constants.sync_s, collective::Calibration{}.sync_s);
}

TEST(Calibrate, RanksWriteWhatTheParentReads) {
  auto o = parse({"--repeats", "1", "--seconds", "0.001"});
  o.worker_task = "calibrate";
  const auto samples = parse_samples(run_ranks(2, o));
  EXPECT_EQ(samples.size(), 6u);
  for (const auto& s : samples) EXPECT_GT(s.seconds, 0) << s.row;
  EXPECT_THAT(message_of([] { parse_samples("{\"row\":"); }), HasSubstr("timed row"));
}

}  // namespace
}  // namespace cohort::bench
