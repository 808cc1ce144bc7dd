// This process's part in an elastic job (job/elastic_job.h), as the HorovodRuntime needs it: one ElasticWorker for the life of the process,
// one epoch at a time, and the number of commits that count, which is the ElasticWorker's step.
//
//   while (!(next = s.next(return_by))) ...     // what comes next; a thread of its own asks, since that may take long
//   auto links = s.connect();                  // none: the epoch was over before it began; ask again
//   s.prepare(); a vote over all ranks; s.decide();
//   s.leave_epoch(error);                      // next() then reports it, and settles a commit that was in progress: commit_counts()
//
// The state itself is the caller's. The first workers of a job begin with what their program made: that is step 0, and all of them have
// it. A worker that joins later has the state when the caller calls state_synced().
// Owner: HorovodRuntime. Threads: one at a time; ask_to_leave() from any. Failure: what ends an epoch (ends_epoch) thrown by prepare,
// decide and state_synced; Kind::usage for an environment that makes no sense; from next(), what ended the job.
#pragma once
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "cohort/job/elastic_job.h"

namespace cohort::python {

class ElasticSession {
 public:
  static std::unique_ptr<ElasticSession> from_environment();  // none: the job has a fixed number of ranks
  ElasticSession(elastic::ElasticWorkerOptions elastic_worker, JobOptions options, std::int64_t reset_limit)
      : job_(std::move(elastic_worker), std::move(options)), reset_limit_(reset_limit) {}

  enum class Next { epoch, released, over };
  std::optional<Next> next(Deadline return_by);
  bool commit_counts() const;  // after next(): the commit that was in progress counts, also where this worker may leave
  std::unique_ptr<collective::Communicator> connect();
  const elastic::ElasticWorker::Begun& epoch() const { return epoch_; }
  bool inside() const { return inside_; }  // of an epoch, or has left one that next() has not reported
  bool over() const { return over_; }      // for this process

  void state_synced();
  void prepare();
  void decide();
  bool wish() const { return job_.elastic_worker().change_requested(); }
  void leave_epoch(std::optional<Error> why);  // before the epoch's links close
  bool departed() const { return inside_ && left_ && !why_left_; }
  void end();                     // training is over, and all ranks know
  bool idle(Deadline return_by);  // no thread waits for the next epoch any more; asks to leave where one does
  void ask_to_leave(std::string why) { job_.elastic_worker().leave(std::move(why)); }

 private:
  bool give_up_if_due();

  job::ElasticJob job_;
  const std::int64_t reset_limit_;  // roster changes before the job is given up (COHORT_RESET_LIMIT)
  std::future<elastic::ElasticWorker::Next> pending_next_;
  std::optional<elastic::ElasticWorker::Next> next_;
  elastic::ElasticWorker::Begun epoch_;
  std::int64_t step_ = 0;
  bool inside_ = false, has_state_ = false, entered_ = false, prepared_ = false, left_ = false, over_ = false;
  std::optional<Error> why_left_;  // it left the epoch
  std::optional<Error> ended_by_;  // what ended the job, thrown at every later call
};

}  // namespace cohort::python
