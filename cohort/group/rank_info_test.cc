#include "cohort/group/rank_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/error.h"

namespace cohort::group {
namespace {

using testing::HasSubstr;

std::string refusal(const Environment& env) {
  try {
    find_rank_info(env);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage);
    return failure.what();
  }
  return "accepted";
}

struct Row {
  const char* family;
  Environment env;
  RankInfo expected;
};

RankInfo at(int rank, int size, int local_rank, int local_size, std::string job = "") {
  RankInfo p;
  p.rank = Rank{rank};
  p.size = size;
  p.local_rank = local_rank;
  p.local_size = local_size;
  p.job = std::move(job);
  return p;
}

const Environment kOurs{{"COHORT_RANK", "2"},
                        {"COHORT_SIZE", "4"},
                        {"COHORT_LOCAL_RANK", "2"},
                        {"COHORT_LOCAL_SIZE", "4"},
                        {"COHORT_JOB", "j1"},
                        {"COHORT_RENDEZVOUS", "127.0.0.1:4000"},
                        {"COHORT_SECRET_FILE", "/proc/1/fd/3"}};
const Environment kTorchrun{{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "node0"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "none"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_RANK", "1"},
                           {"PMIX_NAMESPACE", "77"}};
const Environment kSlurm{
    {"SLURM_PROCID", "4"}, {"SLURM_NTASKS", "5"},  {"SLURM_STEP_NUM_TASKS", "5"}, {"SLURM_LOCALID", "0"},
    {"SLURM_NODEID", "2"}, {"SLURM_JOB_ID", "99"}, {"SLURM_STEP_ID", "1"},        {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"}};

Environment with(Environment env, const Environment& more) {
  for (const auto& [name, value] : more) env[name] = value;
  return env;
}

TEST(RankInfo, IsFoundInTheVariablesOfEveryLauncher) {
  const Row rows[] = {
      {"cohort", kOurs, at(2, 4, 2, 4, "j1")},
      {"torchrun", kTorchrun, at(5, 8, 1, 4, "none.29500")},
      {"horovod",
       {{"HOROVOD_RANK", "0"},
        {"HOROVOD_SIZE", "2"},
        {"HOROVOD_LOCAL_RANK", "0"},
        {"HOROVOD_LOCAL_SIZE", "2"},
        {"HOROVOD_GLOO_RENDEZVOUS_PORT", "5"}},
       at(0, 2, 0, 2, "5")},
      {"openmpi", kOpenMpi, at(1, 2, 1, 2, "77")},
      {"slurm", kSlurm, at(4, 5, 0, 1, "99.1")},
      {"pmi", {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}, at(3, 4, 1, 2)},
      {"pmix", {{"PMIX_RANK", "0"}, {"PMIX_SIZE", "1"}, {"PMIX_NAMESPACE", "n"}}, at(0, 1, 0, 1, "n")},
      {"alone", {{"PATH", "/bin"}}, at(0, 1, 0, 1)},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.family);
    const RankInfo p = find_rank_info(row.env);
    EXPECT_EQ(p.source, row.family);
    EXPECT_EQ(p.rank, row.expected.rank);
    EXPECT_EQ(p.size, row.expected.size);
    EXPECT_EQ(p.local_rank, row.expected.local_rank);
    EXPECT_EQ(p.local_size, row.expected.local_size);
    EXPECT_EQ(p.job, row.expected.job);
    EXPECT_FALSE(p.because.empty());
  }
}

TEST(RankInfo, NamesTheVariablesItUsed) {
  EXPECT_EQ(find_rank_info(kOpenMpi).because,
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2");
}

TEST(RankInfo, CohortRunCountsInsideEveryOtherLauncher) {
  EXPECT_EQ(find_rank_info(with(with(with(kTorchrun, kOpenMpi), kSlurm), kOurs)).source, "cohort");
  EXPECT_EQ(find_rank_info(with(with(kSlurm, kOpenMpi), kTorchrun)).source, "torchrun");
  EXPECT_EQ(find_rank_info(with(kSlurm, kOpenMpi)).source, "openmpi");
}

TEST(RankInfo, ASlurmAllocationWithoutAStepIsNoRank) {
  Environment batch = kSlurm;
  batch.erase("SLURM_STEP_ID");
  EXPECT_EQ(find_rank_info(batch).source, "alone");
}

TEST(RankInfo, AnIncompleteFamilyIsRefusedByName) {
  EXPECT_THAT(refusal({{"RANK", "1"}}), HasSubstr("RANK=1 is set but WORLD_SIZE is not"));
  EXPECT_THAT(refusal({{"HOROVOD_SIZE", "4"}}), HasSubstr("HOROVOD_SIZE=4 is set but HOROVOD_RANK is not"));
  EXPECT_THAT(refusal({{"RANK", "1"}, {"WORLD_SIZE", "4"}}), HasSubstr("set LOCAL_RANK and LOCAL_WORLD_SIZE"));
  EXPECT_THAT(refusal({{"COHORT_RANK", "1"}, {"COHORT_SIZE", "2"}, {"COHORT_LOCAL_RANK", "1"}, {"COHORT_LOCAL_SIZE", "2"}}),
              HasSubstr("COHORT_SECRET_FILE"));
}

TEST(RankInfo, ImpossibleValuesAreRefusedWithTheValue) {
  EXPECT_THAT(refusal({{"RANK", "4"}, {"WORLD_SIZE", "4"}}), HasSubstr("RANK=4 must be an integer from 0 to 3"));
  EXPECT_THAT(refusal({{"RANK", "x"}, {"WORLD_SIZE", "4"}}), HasSubstr("RANK=x"));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), HasSubstr("WORLD_SIZE=0"));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "99999999999999"}}), HasSubstr("WORLD_SIZE=99999999999999"));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "3"}}),
              HasSubstr("LOCAL_WORLD_SIZE=3"));
}

TEST(RankInfo, TwoLaunchersThatContradictEachOtherAreRefused) {
  const Environment stale{{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  const std::string why = refusal(with(kOpenMpi, stale));
  EXPECT_THAT(why, HasSubstr("RANK=0 WORLD_SIZE=1 (torchrun) contradicts OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 (openmpi)"));
  EXPECT_EQ(find_rank_info(with(with(kOpenMpi, stale), {{"COHORT_PLACE", "openmpi"}})).source, "openmpi");
  EXPECT_EQ(find_rank_info(with(kOpenMpi, {{"COHORT_PLACE", "alone"}})).size, 1);
  const Environment same{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_EQ(find_rank_info(with(kOpenMpi, same)).source, "torchrun");
}

TEST(RankInfo, AnUnknownFamilyIsAnsweredWithTheNearest) {
  EXPECT_THAT(refusal({{"COHORT_PLACE", "slrum"}}), HasSubstr("slurm"));
  EXPECT_THAT(refusal({{"COHORT_PLACE", "slurm"}}), HasSubstr("SLURM_PROCID"));
}

TEST(RankInfo, ByHandOnOneHostNeedsNoLocalRank) {
  const RankInfo p = find_rank_info({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(p.local_rank, 1);
  EXPECT_TRUE(p.one_host());
  EXPECT_EQ(p.rendezvous, "");
}

TEST(RankInfo, TheRendezvousIsThePortAfterTorchrunsOwn) {
  EXPECT_EQ(find_rank_info(kTorchrun).rendezvous, "node0:29501");
  EXPECT_EQ(find_rank_info(with(kTorchrun, {{"MASTER_ADDR", "fe80::1"}})).rendezvous, "[fe80::1]:29501");
  EXPECT_EQ(find_rank_info(with(kTorchrun, {{"COHORT_RENDEZVOUS", "a:1"}})).rendezvous, "a:1");
}

}  // namespace
}  // namespace cohort::group
