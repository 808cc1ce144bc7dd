// A job whose workers are lost, leave and join while it runs: starts the workers that its coordinator asks for, here or on hosts that have
// a free slot, runs the discovery script again and again, and restarts a supervised coordinator. Owner: launch(). Threads and failure: as
// JobLoop.
#pragma once
#include <map>
#include <optional>

#include "cohort/launch/back_off.h"
#include "cohort/launch/discovery.h"
#include "cohort/launch/job_loop.h"
#include "cohort/launch/worker_failures.h"

namespace cohort::launch {

class ElasticJob final : public JobLoop {
 public:
  ElasticJob(LaunchPlan plan, Signals& signals) : JobLoop(std::move(plan), signals), own_failures_(plan_.ranks) {}

 private:
  void start() override;
  Deadline add_polls(std::vector<pollfd>& fds) override;
  bool handle_signal(int number) override;
  void coordinator_says(const std::string& line) override;
  void before_output() override;
  void note_end(const Ranks::Ended& ended) override;
  void child_ended(pid_t pid, int status) override;
  void after_ends() override;
  void check_deadlines() override;
  bool goes_on() const override;
  bool ended_badly() const override { return stopped_worker_failed_; }  // workers that the job lost before do not count
  std::optional<int> own_exit_code() override;

  void start_discovery();
  void name_worker(int worker);
  std::string name_of(int worker) const;  // "worker 2 (rank 0)"
  void note_own_failure(const Ranks::Ended& ended);
  void note_failure_after_end(const Ranks::Ended& ended);
  RankFailure report_of(const Ranks::Ended& ended) const;
  void note_life(int worker);
  std::string next_start() const;
  int say_failure(const std::string& text);
  void note_lost_with_host(const Ranks::Ended& ended, const elastic::Process& process);
  bool failed_after_training(const Ranks::Ended& ended) const;
  bool went_without(int worker) const;
  elastic::Process process_of(int worker) const;
  elastic::Workforce workforce() const;
  void look_for_hosts();
  void start_missing_workers();
  bool start_worker();
  int add_here();
  void report_missing();
  void restart_coordinator_if_due();
  void restart_coordinator();
  void end_hung_workers();

  LocalRanks* local_ = nullptr;    // ranks_, where workers are children of this process ..
  RemoteRanks* remote_ = nullptr;  // .. or where agents start them
  std::optional<Discovery> discovery_;
  struct Part {  // in the newest membership epoch that a worker was in
    Epoch epoch;
    Rank rank;
  };
  std::map<int, Part> parts_;                    // by worker
  std::map<int, Clock::time_point> started_at_;  // of the workers that run; of the first ones: when the job began
  WorkerFailures own_failures_;
  std::optional<RankFailure> first_failure_;     // the first of them
  bool given_up_ = false;                        // no other worker is started: it would fail, too
  BackOff brief_lives_;                          // before others are started for workers that ended at once
  BackOff failed_starts_;                        // before another attempt to start a worker
  BackOff failed_restarts_;                      // .. and to start the coordinator again
  int requested_ = 0;                            // workers that were asked for by a signal
  int missing_ = 0;                              // workers that are wanted and not started yet: no host has had a free slot
  int reported_missing_ = 0;                     // .. as was said last
  int usage_failures_ = 0;                       // workers that came later and found the settings wrong
  std::optional<Ranks::Ended> last_end_;         // of a worker that the job had not released
  std::optional<RankFailure> failed_after_end_;  // the first that failed when the job had been trained to its end
  bool stopped_worker_failed_ = false;           // a worker, after the user had stopped the job
  bool coordinator_lost_ = false;                // there is no coordinator, and will be none
  Deadline no_worker_deadline_;                  // without any worker the launcher waits so long for the coordinator to ask for some
  Deadline hang_deadline_;                       // workers that have not ended by then hang
};

}  // namespace cohort::launch
