// A RankInfo is what a launcher tells a process about its job: its rank and the size, globally and on this host, and where the rendezvous
// is. find_rank_info() is a pure function of the environment; the environment itself is read in cli and in cohort::init only.
//
// Families of variables, in this order; the first with any variable set counts:
//   cohort     COHORT_RANK COHORT_SIZE COHORT_LOCAL_RANK COHORT_LOCAL_SIZE             `cohort run`
//   torchrun   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE                              torchrun, and by hand
//   horovod    HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE          horovodrun
//   openmpi    OMPI_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE                       mpirun of Open MPI
//   slurm      SLURM_PROCID SLURM_STEP_NUM_TASKS (SLURM_NTASKS) SLURM_LOCALID, inside a step (SLURM_STEP_ID)
//   pmi        PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS                        mpiexec of MPICH, Intel MPI
//   pmix       PMIX_RANK PMIX_SIZE PMIX_LOCAL_RANK PMIX_LOCAL_SIZE                      other PMIx servers
// COHORT_PLACE=<family> chooses one by name; COHORT_PLACE=alone is a world of one, and so is no variable at all.
//
// Owner: values. Threads: any. Failure: Kind::usage naming the variables and their values; nothing is guessed from an incomplete family,
// and two families that contradict each other are refused unless one starts the other (cohort and torchrun inside anything, anything inside
// Slurm). To add a family: one row in rank_info.cc, one line here, one row in rank_info_test.cc.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "cohort/base/ids.h"

namespace cohort::group {

using Environment = std::map<std::string, std::string, std::less<>>;

struct RankInfo {
  Rank rank{0};
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string source = "alone";                  // the family's name
  std::string because = "given by the program";  // for messages: "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4"
  std::string job;                               // the launcher's id of this job; empty where it has none
  std::string rendezvous;                        // host:port of the rendezvous server; empty: not set
  std::string secret_file;                       // file of the job's secret; empty: not set
  std::string host;       // COHORT_HOST: the launcher's name of this host; ranks with different names share no memory. Empty: not set
  std::string interface;  // COHORT_INTERFACE: the network interface this rank listens on; empty: the one that reaches the coordinator

  bool one_host() const { return local_size == size; }
  bool from_cohort() const { return source == "cohort"; }
};

RankInfo find_rank_info(const Environment& environment);

// The variables of this process. Called by cli and by cohort::init only.
Environment read_environment();

}  // namespace cohort::group
