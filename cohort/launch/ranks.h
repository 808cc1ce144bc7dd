// The ranks of a job as their launcher or agent sees them: how many run, how they ended, signals to them, their output on its way.
// LocalRanks are children of this process (a launcher, or an agent on its host); RemoteRanks (remote_ranks.h) are those of agents.
// Owner: the launcher or an agent. Threads: one. Failure: Kind::system when starting.
#pragma once
#include <poll.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/launch/child.h"
#include "cohort/launch/memory_kills.h"
#include "cohort/launch/output.h"

namespace cohort::launch {

struct RankState {
  pid_t pid = -1;
  std::optional<int> status;    // of waitpid, once it has ended
  std::string host;             // empty: this one
  bool lost_with_host = false;  // nobody saw it end
  std::string how{};            // it ended: describe_end
  bool running() const { return !status; }
};

class Ranks {
 public:
  virtual ~Ranks() = default;
  int first() const { return first_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const RankState& operator[](int rank) const { return ranks_.at(static_cast<std::size_t>(rank - first_)); }
  int running() const;

  struct Ended {
    int rank;
    int status;
    std::string how;
    bool seen = true;  // false: nobody saw it end, as its host was lost, or it never ran
    bool for_memory = false;
  };
  virtual std::vector<Ended> take_ends() = 0;  // since it was asked last
  // What ends the job and is no end of a rank: a host that cannot be reached or was lost. Exit status and sentence.
  struct HostFailure {
    int code;
    std::string what;
  };
  // Other children of this process whose end was seen meanwhile.
  struct Other {
    pid_t pid;
    int status;
  };
  std::vector<Other> take_others() { return std::exchange(others_, {}); }
  virtual std::optional<HostFailure> take_host_failure() { return std::nullopt; }
  virtual void signal(int number) = 0;  // to the process group of every rank that runs; a preemption notice (LocalRanks) to the rank alone

  virtual void add_polls(std::vector<pollfd>& fds, bool with_stdout, bool with_stderr) const = 0;
  virtual void move(Clock::time_point now, bool with_stdout, bool with_stderr) = 0;  // whatever is there, without waiting
  virtual bool anything_open() const = 0;
  virtual bool busy() const { return running() > 0; }  // there is something to wait for
  virtual Deadline next_look() const { return {}; }
  virtual std::vector<std::string> take_verbose() { return {}; }   // lines for -v
  virtual std::vector<std::string> take_messages() { return {}; }  // lines for everybody

 protected:
  int first_ = 0;
  std::vector<RankState> ranks_;
  std::vector<Other> others_;
};

class LocalRanks : public Ranks {
 public:
  explicit LocalRanks(RankSink& sink) : sink_(sink) {}
  // All or none: what was started is killed when a later one cannot be.
  void start(int first, const std::vector<ChildPlan>& plans);
  int add(const ChildPlan& plan);  // one more, behind the last; its number
  // Elastic jobs: SIGTERM and SIGUSR1 ask a rank to leave, and until it does it needs its child processes (data loader workers).
  void signal_leaders_only() { leaders_only_ = true; }

  std::vector<Ended> take_ends() override;  // reaps every child that has ended; orphans of the ranks are reaped silently
  void signal(int number) override;
  void add_polls(std::vector<pollfd>& fds, bool with_stdout, bool with_stderr) const override;
  void move(Clock::time_point now, bool with_stdout, bool with_stderr) override;
  bool anything_open() const override;

 private:
  void read_stream(std::size_t at, int stream, Clock::time_point now);

  RankSink& sink_;
  bool leaders_only_ = false;
  MemoryKills memory_kills_;
  std::vector<Child> children_;
};

}  // namespace cohort::launch
