#include "cohort/train/elastic_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/error.h"

namespace cohort {
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

const auto kNextStep = AllOf(HasSubstr("comm: gloo keeps to the ranks"), HasSubstr("drop --comm"), HasSubstr("without --min-n"));

TEST(ElasticJob, RefusesAnotherEngineThatTheLauncherWasAskedFor) {
  const group::Environment told{{"COHORT_ELASTIC", "0.6"},
                                {"COHORT_JOB", "job"},
                                {"COHORT_RENDEZVOUS", "127.0.0.1:1"},
                                {"COHORT_SECRET_FILE", "/nowhere"},
                                {"COHORT_COMM", "gloo"}};
  EXPECT_THAT(refusal([&] { ElasticJob::from_environment(told); }), kNextStep);
}

TEST(ElasticJob, RefusesAnotherEngineThatTheProgramAsksForBeforeItJoins) {
  // Nobody listens at this address: whoever tried to join would fail otherwise.
  const group::SeatOptions seat{.job = "job", .coordinator = {"127.0.0.1", 1}, .secret = net::Secret::random()};
  EXPECT_THAT(refusal([&] { ElasticJob job(seat, {.comm = "gloo"}); }), kNextStep);
}

TEST(ElasticJob, IsNoneWithoutItsVariablesWhateverTheEngine) { EXPECT_FALSE(ElasticJob::from_environment({{"COHORT_COMM", "gloo"}})); }

}  // namespace
}  // namespace cohort
