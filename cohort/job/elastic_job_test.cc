#include "cohort/job/elastic_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/log.h"

namespace cohort::job {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage);
    return failure.what();
  }
  return "not refused";
}

const auto kNextStep = AllOf(HasSubstr("backend: gloo keeps to the ranks"), HasSubstr("drop --backend"), HasSubstr("without --min-n"));

TEST(ElasticJob, RefusesAnotherBackendInTheEnvironment) {
  const group::Environment environment{{"COHORT_ELASTIC", "0.6"},
                                       {"COHORT_JOB", "job"},
                                       {"COHORT_RENDEZVOUS", "127.0.0.1:1"},
                                       {"COHORT_SECRET_FILE", "/nowhere"},
                                       {"COHORT_BACKEND", "gloo"}};
  EXPECT_THAT(refusal([&] { ElasticJob::from_environment(environment); }), kNextStep);
}

TEST(ElasticJob, RefusesAnotherBackendInItsOptionsBeforeItJoins) {
  // No coordinator listens at this address: an attempt to join would fail otherwise.
  const elastic::ElasticWorkerOptions elastic_worker{.job = "job", .coordinator = {"127.0.0.1", 1}, .secret = net::Secret::random()};
  EXPECT_THAT(refusal([&] { ElasticJob job(elastic_worker, {.backend = "gloo"}); }), kNextStep);
}

TEST(ElasticJob, LinesOfAWorkerNameItByTheNumberThatTheLauncherGaveIt) {
  const TempDir folder;
  const auto secret = net::Secret::random();
  std::ofstream(folder.file("secret")) << std::string(reinterpret_cast<const char*>(secret.bytes().data()), secret.bytes().size());
  std::filesystem::permissions(folder.file("secret"), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const group::Environment environment{{"COHORT_ELASTIC", "0.6"},
                                       {"COHORT_JOB", "job"},
                                       {"COHORT_RENDEZVOUS", "127.0.0.1:1"},
                                       {"COHORT_SECRET_FILE", folder.file("secret")},
                                       {"COHORT_RANK", "7"}};
  testing::internal::CaptureStderr();
  ElasticJob job(*ElasticJob::from_environment(environment), {});
  log_warning("joins");
  const auto comm =
      job.connect({.roster = {.job = "job", .epoch = Epoch{1}, .members = {{}}}, .rank = Rank{0}, .base = {}, .heal_from = {}});
  log_warning("here");
  const std::string said = testing::internal::GetCapturedStderr();
  set_log_rank(kNoRank);
  EXPECT_THAT(said, AllOf(HasSubstr(" worker 7 warning: joins"), HasSubstr(" worker 7 (rank 0) warning: here")));
}

TEST(ElasticJob, IsNoneWithoutItsVariablesWhateverTheBackend) { EXPECT_FALSE(ElasticJob::from_environment({{"COHORT_BACKEND", "gloo"}})); }

}  // namespace
}  // namespace cohort::job
