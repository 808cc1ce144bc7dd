// A Job is this process's part in a training run: its rank, its peers, and the communicator that joins them.
//
//   cohort::Job job = cohort::init();
//   job.comm().all_reduce(cohort::collective::piece(std::span(values)), cohort::collective::Op::sum);
//
// init() finds the place of this process from the launcher's variables (group/place.h lists them), meets the other ranks and opens
// the links. It logs which variables it used (rank 0 of a foreign launcher at level info, else debug). Nothing set is a world of one.
// Owner: the caller; the destructor says goodbye to the peers and gives everything back, so init() may be called again.
// Threads: one at a time. Failure: Kind::usage (variables that make no sense), Kind::timeout naming the missing ranks, Kind::peer_lost,
// Kind::corrupt. No signal handler is installed and no thread count is set.
#pragma once
#include <memory>
#include <string>

#include "cohort/base/config.h"
#include "cohort/collective/communicator.h"
#include "cohort/group/place.h"
#include "cohort/group/roster.h"

namespace cohort {

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
  std::string bits = "same";
  std::string calibration;  // see collective/calibrated.h
  int threads = 0;
  std::string comm = "own";  // who moves bulk data, see collective/engine.h
  std::string engines;       // folder of engines' libraries
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
  const group::Place& place() const;

  // Threads for this rank's share of the host: what the launcher decided, else the cores it may use divided by the ranks on them.
  int suggested_threads() const;

  Job(Job&&) noexcept;
  Job& operator=(Job&&) noexcept;
  ~Job();

 private:
  struct Impl;
  explicit Job(std::unique_ptr<Impl> impl);
  friend Job init(const group::Place& place, const JobOptions& options);
  std::unique_ptr<Impl> impl_;
};

// Reads the environment: the place and COHORT_TRANSPORT, COHORT_TIMEOUT, COHORT_START_TIMEOUT, COHORT_LOG ...
Job init(JobOptions options = {});
// Reads no environment: without a calibration the cost constants are the built-in ones.
Job init(const group::Place& place, const JobOptions& options = {});

}  // namespace cohort
