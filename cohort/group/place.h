// A Place is where this process stands in its job: which rank of how many, who says so, and how to meet the others.
// find_place() is a pure function of the environment; the environment itself is read in cli and in cohort::init only.
//
// Families of variables, in this order; the first that has any variable set counts:
//   cohort     COHORT_RANK COHORT_SIZE COHORT_LOCAL_RANK COHORT_LOCAL_SIZE             `cohort run`
//   torchrun   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE                              torchrun, and by hand
//   horovod    HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE          horovodrun
//   openmpi    OMPI_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE                       mpirun of Open MPI
//   slurm      SLURM_PROCID SLURM_STEP_NUM_TASKS (SLURM_NTASKS) SLURM_LOCALID, inside a step (SLURM_STEP_ID)
//   pmi        PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS                        mpiexec of MPICH, Intel MPI
//   pmix       PMIX_RANK PMIX_SIZE PMIX_LOCAL_RANK PMIX_LOCAL_SIZE                      other PMIx servers
// COHORT_PLACE=<family> chooses one by name; COHORT_PLACE=alone is a world of one. Nothing set is a world of one, too.
//
// Owner: values. Threads: any. Failure: Kind::usage naming the variables and their values; nothing is guessed from half a family, and
// two families that contradict each other are refused unless one starts the other (cohort and torchrun inside anything, anything inside
// Slurm). To add a family: one row in place.cc, one line here, one row in place_test.cc.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "cohort/base/ids.h"

namespace cohort::group {

using Environment = std::map<std::string, std::string, std::less<>>;

struct Place {
  Rank rank{0};
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string source = "alone";                  // the family's name
  std::string because = "given by the program";  // for people: "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4"
  std::string job;          // what the launcher calls this job; may be empty for foreign launchers that give it no name
  std::string rendezvous;   // host:port of the coordinator; empty: none was named
  std::string secret_file;  // where the job's secret lies; empty: none was named
  std::string host;         // COHORT_HOST: what the launcher calls this host; ranks of different names share no memory. Empty: not said
  std::string interface;    // COHORT_INTERFACE: through which this rank is to be reached; empty: the way it reaches the coordinator

  bool one_host() const { return local_size == size; }
  bool from_cohort() const { return source == "cohort"; }
};

Place find_place(const Environment& environment);

// The variables of this process. Called by cli and by cohort::init, nowhere else.
Environment read_environment();

}  // namespace cohort::group
