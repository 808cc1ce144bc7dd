// A Job is this process's part in a training run: its rank, its peers, and the communicator that connects them.
//
//   cohort::Job job = cohort::init();
//   job.comm().all_reduce(cohort::collective::piece(std::span(values)), cohort::collective::Op::sum);
//
// init() finds the rank of this process from the launcher's variables (group/rank_info.h lists them), connects to the other ranks and opens
// the communicator. It logs which variables it used (rank 0 of a foreign launcher at level info, else debug). None set: a world of one.
// Owner: the caller; the destructor closes the links and releases everything, so init() may be called again.
// Threads: one at a time. Failure: Kind::usage (variables that make no sense), Kind::timeout naming the missing ranks, Kind::peer_lost,
// Kind::corrupt. No signal handler is installed and no thread count is set.
#pragma once
#include <memory>
#include <string>

#include "cohort/base/config.h"
#include "cohort/collective/communicator.h"
#include "cohort/group/rank_info.h"
#include "cohort/group/roster.h"

namespace cohort::job {

// What a program may choose; COHORT_<NAME> in the environment wins over it.
struct JobOptions {
  std::string transport = "auto";
  std::string congestion = "auto";
  bool tls = false;
  std::string checksums = "auto";
  int streams = 0;
  Seconds timeout{300};
  Seconds start_timeout{30};
  Seconds warn_after{5};
  std::string log;
  std::string algorithm;
  bool deterministic = true;
  std::string calibration;  // see collective/cost/calibration_file.h
  int threads = 0;
  std::string backend = "native";  // who moves bulk data, see collective/plugin/backend.h
  std::string backends;            // folder of the backends' libraries
};
void fields(JobOptions& options, FieldList& list);

class Job {
 public:
  Rank rank() const;
  int size() const;
  int local_rank() const;
  int local_size() const;
  Epoch epoch() const;
  collective::Communicator& comm() const;
  const group::Roster& roster() const;
  const group::RankInfo& rank_info() const;

  // Threads for this rank's share of the host: what the launcher decided, else the cores it may use divided by the ranks on them.
  int suggested_threads() const;

  Job(Job&&) noexcept;
  Job& operator=(Job&&) noexcept;
  ~Job();

 private:
  struct Impl;
  explicit Job(std::unique_ptr<Impl> impl);
  friend Job init(const group::RankInfo& info, const JobOptions& options);
  std::unique_ptr<Impl> impl_;
};

// Reads the environment: the rank and COHORT_TRANSPORT, COHORT_TIMEOUT, COHORT_START_TIMEOUT, COHORT_LOG ...
Job init(JobOptions options = {});
// Reads no environment: without a calibration the cost constants are the built-in ones.
Job init(const group::RankInfo& info, const JobOptions& options = {});

}  // namespace cohort::job

namespace cohort {
using job::init;
using job::Job;
using job::JobOptions;
}  // namespace cohort
