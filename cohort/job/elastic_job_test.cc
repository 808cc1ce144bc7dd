#include "cohort/job/elastic_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/error.h"

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

TEST(ElasticJob, IsNoneWithoutItsVariablesWhateverTheBackend) { EXPECT_FALSE(ElasticJob::from_environment({{"COHORT_BACKEND", "gloo"}})); }

}  // namespace
}  // namespace cohort::job
