// An ElasticJob is a worker's part in a job whose roster changes while it trains: its connection to the coordinator
// (elastic/elastic_worker.h), and a communicator for each epoch. A changed roster is a new communicator with memory of its own: what a
// worker of an old epoch still writes is not read.
//
//   ElasticJob job(*ElasticJob::from_environment(environment), options);
//   ElasticWorker::Next next = job.elastic_worker().next();
//   auto comm = job.connect(std::get<ElasticWorker::Begun>(next));     // collective: all of the roster
//   bool change = job.commit(*comm);                          // every step: all voted. True: the roster changes now
//   job.leave_epoch(std::move(comm), error);
//
// Owner: the training program. Threads: one, but for elastic_worker().leave(). Failure: Kind::peer_lost, Kind::timeout and Kind::aborted
// end an epoch, see ends_epoch(); Kind::usage for another `backend` than native, before it joins; anything else is this worker's own.
#pragma once
#include <memory>
#include <optional>

#include "cohort/collective/communicator.h"
#include "cohort/elastic/elastic_worker.h"
#include "cohort/group/rank_info.h"
#include "cohort/job/job.h"

namespace cohort::job {

class ElasticJob {
 public:
  // The options that `cohort run --min-n` passes in the environment; none: the job's ranks are fixed.
  static std::optional<elastic::ElasticWorkerOptions> from_environment(const group::Environment& environment);

  ElasticJob(elastic::ElasticWorkerOptions elastic_worker, JobOptions options);
  elastic::ElasticWorker& elastic_worker() { return elastic_worker_; }
  const elastic::ElasticWorker& elastic_worker() const { return elastic_worker_; }

  std::unique_ptr<collective::Communicator> connect(const elastic::ElasticWorker::Begun& epoch);
  // The step's gradients are reduced and held. Returns when all ranks voted for it: it counts. Kind::aborted: it was called off here.
  bool commit(collective::Communicator& comm);
  // An epoch ended; error: because of it. Links and memory are released before the coordinator is told.
  void leave_epoch(std::unique_ptr<collective::Communicator> comm, const Error* error);

 private:
  void name_in_log(Rank rank) const;

  const elastic::ElasticWorkerOptions worker_options_;
  const JobOptions options_;
  elastic::ElasticWorker elastic_worker_;
};

// Whether a failure means that ranks were lost, after which the survivors go on.
bool ends_epoch(const Error& error);

}  // namespace cohort::job
