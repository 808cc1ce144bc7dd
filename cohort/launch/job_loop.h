// The loop of a launcher, one job long: waits for anything (output, ends of ranks, signals, the coordinator, deadlines), then looks at
// everything, round after round, until nothing of the job runs any more. FixedJob (launcher.cc) and ElasticJob add what they do
// differently. Owner: launch(). Threads: the main one; the coordinator has its own. Failure: NoProgram and Kind::system when starting;
// later ones become the exit status and lines on stderr.
#pragma once
#include <poll.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/launch/failure_report.h"
#include "cohort/launch/job_rendezvous.h"
#include "cohort/launch/launcher.h"
#include "cohort/launch/output.h"
#include "cohort/launch/ranks.h"
#include "cohort/launch/remote_ranks.h"
#include "cohort/launch/terminal.h"

namespace cohort::launch {

class JobLoop {
 public:
  JobLoop(LaunchPlan plan, Signals& signals);
  virtual ~JobLoop() = default;
  JobLoop(const JobLoop&) = delete;
  JobLoop& operator=(const JobLoop&) = delete;
  int run();  // the exit status

 protected:
  // What kinds of jobs do differently, in the order in which a round asks for it.
  virtual void start() = 0;  // by start_here() or start_agents()
  virtual Deadline add_polls(std::vector<pollfd>& /*fds*/) { return {}; }
  virtual bool handle_signal(int /*number*/) { return false; }  // true: it is dealt with
  virtual void note_end(const Ranks::Ended& ended) = 0;
  virtual void coordinator_says(const std::string& line) { say(line); }
  virtual void before_output() {}  // what is read from ranks next may be shown under other names
  virtual void child_ended(pid_t pid, int status) { rendezvous_.child_ended(pid, status); }  // a child that is no rank
  virtual void after_ends() {}
  virtual void check_deadlines() {}
  virtual bool goes_on() const { return ranks_->busy(); }
  virtual bool ended_badly() const = 0;                                // of ranks that were asked to end: whether one did so with an error
  virtual std::optional<int> own_exit_code() { return std::nullopt; }  // where nothing stopped the job; none: as of any job

  LocalRanks& start_here();
  RemoteRanks& start_agents();
  void fail(int rank, int status);
  void stop(int number, Seconds grace);  // a signal to all ranks, then SIGKILL
  bool stopping() const { return !kill_at_.never(); }
  bool stopped() const { return stopped_by_ != 0; }  // by the user, or because the foreground process is gone
  void say(const std::string& text) { terminal_.say(text); }
  void say_verbose(const std::string& text) {
    if (plan_.options.verbose) say(text);
  }
  Seconds elapsed() const { return Clock::now() - began_; }

  LaunchPlan plan_;
  Signals& signals_;
  Terminal terminal_;
  Output output_;
  std::unique_ptr<Ranks> ranks_;
  JobRendezvous rendezvous_;
  FailureLog failures_;  // of ranks; this or host_failure_ was first, not both
  std::optional<Ranks::HostFailure> host_failure_;
  int stopped_by_ = 0;  // a signal of the user's
  bool timed_out_ = false;

 private:
  void start_ranks();
  void poll_once();
  void on_foreground_lost();
  void take_signal(int number);
  void note_ends();
  void fail(Ranks::HostFailure host_failure);
  void check_clock();
  void shut_down();
  int exit_code();

  const Clock::time_point began_ = Clock::now();
  Deadline job_ends_;
  Deadline kill_at_;  // never: nobody is being stopped
  Deadline stop_at_;  // never: no rank has failed, or the others were asked to end
  bool killed_ = false;
  bool foreground_gone_ = false;
};

}  // namespace cohort::launch
