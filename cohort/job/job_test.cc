#include "cohort/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <span>
#include <thread>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/collective/cost/calibration_file.h"
#include "cohort/collective/cost/cost.h"

namespace cohort::job {
namespace {

using testing::HasSubstr;

int sum_of_ranks(Job& job) {
  std::vector<std::int32_t> value{job.rank().value + 1};
  job.comm().all_reduce(collective::piece(std::span(value)), collective::Op::sum, {.name = "test"});
  return value[0];
}

long entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return std::distance(begin(all), end(all));
}

TEST(Job, AWorldOfOneWorks) {
  Job job = init(group::RankInfo{});
  EXPECT_EQ(job.rank(), Rank{0});
  EXPECT_EQ(job.size(), 1);
  EXPECT_EQ(job.roster().size(), 1);
  EXPECT_EQ(sum_of_ranks(job), 1);
}

// A foreign launcher's ranks, as threads of this process.
group::RankInfo info_of(int rank, int size, const std::string& job) {
  group::RankInfo p;
  p.source = "torchrun";
  p.rank = Rank{rank};
  p.local_rank = rank;
  p.size = p.local_size = size;
  p.job = job;
  return p;
}

TEST(Job, RanksConnectSumAndLeaveAgainAndAgain) {
  const std::string name = fmt::format("job-test-{}", getpid());
  long descriptors = 0, threads = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::future<int>> sums;
    for (int r = 0; r < 3; ++r)
      sums.push_back(std::async(std::launch::async, [=] {
        Job job = init(info_of(r, 3, name), {.start_timeout = 20s});
        EXPECT_EQ(job.rank(), Rank{r});
        EXPECT_EQ(job.roster().members[2].pid, getpid());
        return sum_of_ranks(job);
      }));
    for (auto& sum : sums) EXPECT_EQ(sum.get(), 6);
    if (round == 0) descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");  // a sanitizer has a thread of its own
  }
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  const Deadline limit = Deadline::in(10s);  // a thread that was joined is in that folder for a moment more
  while (entries("/proc/self/task") > threads && !limit.passed()) std::this_thread::sleep_for(1ms);
  EXPECT_LE(entries("/proc/self/task"), threads);
}

TEST(Job, AMovedJobIsTheSameJob) {
  Job first = init(group::RankInfo{});
  Job second = std::move(first);
  EXPECT_EQ(sum_of_ranks(second), 1);
  second = init(group::RankInfo{});
  EXPECT_EQ(sum_of_ranks(second), 1);
}

TEST(Job, TheEnvironmentWinsOverTheProgramAndIsChecked) {
  setenv("COHORT_PLACE", "alone", 1);
  setenv("COHORT_THREADS", "7", 1);
  EXPECT_EQ(init(JobOptions{.threads = 3}).suggested_threads(), 7);
  setenv("COHORT_THREADS", "", 1);  // as good as unset
  EXPECT_EQ(init(JobOptions{.threads = 3}).suggested_threads(), 3);
  unsetenv("COHORT_THREADS");
  setenv("COHORT_TRANSPORT", "tpc", 1);
  try {
    init();
    FAIL() << "a transport that does not exist was accepted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage);
    EXPECT_THAT(failure.what(), HasSubstr("COHORT_TRANSPORT"));
  }
  unsetenv("COHORT_TRANSPORT");
  unsetenv("COHORT_PLACE");
}

std::string constants_of(const Job& job) {
  float value = 0;
  const auto text = job.comm().explain(collective::piece(std::span(&value, 1)), collective::Op::sum);
  return text.substr(text.rfind("constants: "));
}

// Two ranks as threads, over tcp; what each says about its constants.
std::vector<std::string> constants_with(const std::string& calibration) {
  const std::string name = fmt::format("constants-test-{}", getpid());
  std::vector<std::future<std::string>> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.push_back(std::async(std::launch::async, [=] {
      return constants_of(init(info_of(r, 2, name), {.transport = "tcp", .start_timeout = 20s, .calibration = calibration}));
    }));
  return {ranks[0].get(), ranks[1].get()};
}

TEST(Job, UsesTheConstantsThatWereMeasuredOnThisMachine) {
  const TempDir folder;
  const std::string there = folder.path() + "/", path = collective::calibration_file(there, "tcp");
  const std::vector<std::string> built_in(2, "constants: built in");
  EXPECT_EQ(constants_with(there), built_in) << "none were measured";
  collective::Calibration{}.save(path);
  EXPECT_EQ(constants_with(there), (std::vector<std::string>{"constants: " + path, "constants: a file of rank 0"}));
  EXPECT_EQ(constants_with("none"), built_in);
  EXPECT_EQ(constants_with(""), built_in);
}

TEST(Job, IgnoresConstantsOfOtherMachines) {
  const TempDir folder;
  const std::string there = folder.path() + "/", path = collective::calibration_file(there, "tcp");
  const std::vector<std::string> built_in(2, "constants: built in");
  collective::Calibration{}.save(path);
  auto text = read_file(path);
  const auto at = text.find(collective::machine_text());
  ASSERT_NE(at, std::string::npos);
  text.insert(at, "other-");
  write_file_atomically(path, text);
  EXPECT_EQ(constants_with(there), built_in);
  EXPECT_EQ(constants_with(path).at(0), "constants: " + path) << "a file that was named is wanted";
  for (const char* broken : {"", "{}", "[1]", "{\"sync_s\": -1}"}) {
    write_file_atomically(path, broken);
    EXPECT_EQ(constants_with(there), built_in) << broken;
  }
}

TEST(Job, LooksForConstantsInTheUsersCache) {
  const TempDir folder;
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  EXPECT_EQ(collective::usual_calibration_folder(), folder.path() + "/cohort/");
  setenv("XDG_CACHE_HOME", "", 1);
  setenv("HOME", folder.path().c_str(), 1);
  EXPECT_EQ(collective::usual_calibration_folder(), folder.path() + "/.cache/cohort/");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", home.c_str(), 1);
}

TEST(Job, SuggestsAtLeastOneThread) {
  group::RankInfo crowded;
  EXPECT_GE(init(crowded).suggested_threads(), 1);
}

TEST(Job, EveryOptionIsDescribed) {
  JobOptions options;
  const Config config(options);
  EXPECT_THAT(config.help(), HasSubstr("start_timeout"));
  EXPECT_EQ(config.all().size(), 15u);
}

}  // namespace
}  // namespace cohort::job
