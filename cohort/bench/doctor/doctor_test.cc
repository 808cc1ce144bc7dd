#include "cohort/bench/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/bytes.h"

namespace cohort::bench::doctor {
namespace {

using testing::HasSubstr;

TEST(Doctor, JudgesCoresByAffinityAndQuota) {
  EXPECT_EQ(judge_cores(8, 8, std::nullopt).level, Level::ok);
  EXPECT_EQ(judge_cores(8, 4, std::nullopt).level, Level::note);
  EXPECT_EQ(judge_cores(1, 1, std::nullopt).level, Level::note);
  EXPECT_EQ(judge_cores(8, 8, 1.5).level, Level::warn);
  EXPECT_EQ(judge_cores(8, 8, 8.0).level, Level::ok);
}

TEST(Doctor, FailsOnLimitsUnderWhichNoJobStarts) {
  EXPECT_EQ(judge_open_files(20, 20).level, Level::fail);
  EXPECT_EQ(judge_open_files(256, 4096).level, Level::warn);
  EXPECT_EQ(judge_open_files(4096, 4096).level, Level::ok);
  EXPECT_EQ(judge_processes(10).level, Level::fail);
  EXPECT_EQ(judge_processes(100000).level, Level::ok);
}

TEST(Doctor, FailsWhereTheWorkerDoesNotStart) {
  const Finding finding = judge_worker("/bin/cohort-worker", false, "libtorch_cpu.so: cannot open");
  EXPECT_EQ(finding.level, Level::fail);
  EXPECT_THAT(finding.text, HasSubstr("/bin/cohort-worker does not start: libtorch_cpu.so: cannot open"));
}

TEST(Doctor, SaysWhatToDoWheneverAllIsNotWell) {
  for (const Finding& f :
       {judge_memory(16_GiB, 100_MiB, std::nullopt), judge_memory(16_GiB, 8_GiB, 512_MiB), judge_open_files(20, 20), judge_processes(10),
        judge_shm_folder(64_MiB), judge_load(2.0, 2), judge_torch("python", "2.4.1", true, ""), judge_torch("python", "2.13.0", false, ""),
        judge_worker("worker", false, "libtorch_cpu.so: cannot open"), judge_kernels(false, true, 0), judge_kernels(true, true, 0),
        judge_congestion("bbr", "reno bbr"), judge_congestion("bbr", "reno bbr cubic")}) {
    EXPECT_NE(f.level, Level::ok) << f.text;
    EXPECT_FALSE(f.advice.empty()) << f.text;
  }
}

TEST(Doctor, IsContentWithAGoodMachine) {
  for (const Finding& f : {judge_memory(16_GiB, 8_GiB, std::nullopt), judge_shm_folder(8_GiB), judge_load(0.1, 2),
                           judge_torch("python", "2.13.0+cpu", true, ""), judge_torch("python", "2.11.0+cu130", true, "13.0"),
                           judge_torch("python", "3.0.0", true, ""), judge_worker("worker", true, ""), judge_kernels(true, true, 8),
                           judge_kernels(true, false, 0), judge_congestion("cubic", "reno cubic")})
    EXPECT_EQ(f.level, Level::ok) << f.text;
}

TEST(Doctor, ExitsWithOneOnlyWhenSomethingFails) {
  EXPECT_EQ(exit_status({{Level::warn, "a", "b", "c"}}), 0);
  EXPECT_EQ(exit_status({{Level::ok, "a", "b", ""}, {Level::fail, "a", "b", "c"}}), 1);
  EXPECT_THAT(format_summary({{Level::fail, "a", "b", "c"}}), HasSubstr("1 failures"));
  EXPECT_THAT(format_finding({Level::warn, "load", "busy", "wait"}), HasSubstr("-> wait"));
}

TEST(DoctorProcess, LooksAtEverythingOnThisMachine) {
  const auto findings = examine();
  std::vector<std::string> topics;
  for (const Finding& f : findings) {
    topics.push_back(f.topic);
    EXPECT_THAT(f.text, testing::Not(HasSubstr("could not be checked"))) << f.topic;
    EXPECT_TRUE(f.level < Level::warn || !f.advice.empty()) << f.text;
  }
  EXPECT_THAT(topics, testing::IsSupersetOf({"cores", "kernels", "numa", "memory", "memfd", "mapping", "files", "loopback", "torch",
                                             "worker", "mpi", "gpu"}));
}

}  // namespace
}  // namespace cohort::bench::doctor
