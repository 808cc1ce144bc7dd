// The coordinator of an elastic job as a process of its own (--supervised). It may die, by whatever signal, and is started again; the
// launcher is then its supervisor and stays:
//
//   shell -- foreground -- supervisor -- coordinator
//                              '-------- rank 0, rank 1, ..   or, on several hosts, the remote shells of their agents
//
// The supervisor has what must outlive a coordinator: the listening socket (workers that reconnect find the same port, and wait in its
// backlog meanwhile), the secret, the log of decisions (a file in memory: no full disk ends it, nothing is left of it), the ranks and their
// output. It starts workers when it is asked to, and reports how processes ended; a restarted coordinator gets all of that. The two use a
// socket pair. The coordinator is forked, not executed anew: a program that was replaced on disk cannot read the log of another version.
// Owner: JobRendezvous. Threads: one, and no other may run in this process when it forks. Failure: Kind::system, also of start() for
// another one, which can then be called again; a coordinator that dies more than kMaxRestarts times within kRestartWindow is given up, and
// ending() says why. One that does not answer for silence_limit() (stopped, or in an endless loop) is killed, so that it cannot wake up
// beside its successor.
#pragma once
#include <sys/types.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"
#include "cohort/elastic/elastic_coordinator.h"

namespace cohort::launch {

// A worker's part in a membership epoch.
struct Begun {
  elastic::Process process;
  Epoch epoch;
  Rank rank;
};

class CoordinatorProcess {
 public:
  static constexpr int kMaxRestarts = 5;  // within ..
  static constexpr Seconds kRestartWindow{60};
  static constexpr int kWorkersWait = 3;  // so many times as long workers wait for its answer, at least: another is started meanwhile
  static constexpr int kSilences = 5;     // silence_limit(): so many times as long as the silence after which a worker is lost

  CoordinatorProcess(elastic::ElasticRules rules, const net::Secret& secret, net::Listener listener);
  ~CoordinatorProcess();  // as close()
  CoordinatorProcess(const CoordinatorProcess&) = delete;
  CoordinatorProcess& operator=(const CoordinatorProcess&) = delete;

  void start(elastic::Workforce workforce);
  pid_t pid() const { return pid_; }  // -1: none runs
  int fd() const { return channel_.get(); }

  void child_ended(pid_t pid, int status);  // a child of this process, as waitpid reports it: perhaps the coordinator
  bool due() const { return due_; }         // it was, and start() is to be called, again where it throws
  void check_alive();                       // asks it again and again whether it still works; to be called at next_look() at the latest
  Seconds silence_limit() const { return Seconds{kSilences * rules_.lost_after()}; }
  Deadline next_look() const { return pid_ > 0 && !closed_ ? next_look_ : Deadline{}; }
  void close();  // its work is done: it ends, and is not started again

  void process_ended(const elastic::Process& process, const std::string& how);
  void process_vanished(const elastic::Process& process, const std::string& how);
  void spawn_failed(const std::string& why);

  // What it has sent since this was called last.
  struct Events {
    std::vector<std::string> lines;
    int wanted = 0, rejoined = 0;  // workers to start; workers that came back by themselves
    std::vector<elastic::Process> released;
    std::vector<Begun> begun;
  };
  Events take();
  bool formed() const { return formed_; }
  bool committed() const { return committed_; }
  const std::optional<elastic::ElasticCoordinator::Ending>& ending() const { return ending_; }

 private:
  void receive();
  void send(char what, std::int64_t number, const std::string& text);
  [[noreturn]] void be_coordinator(elastic::Workforce workforce, pid_t supervisor, int channel) noexcept;

  const elastic::ElasticRules rules_;
  const net::Secret secret_;
  net::Listener listener_;  // closed when the coordinator is given up
  const Fd log_;
  Fd channel_;
  pid_t pid_ = -1;
  bool due_ = false, closed_ = false, formed_ = false, committed_ = false;
  bool answered_ = true;                  // the last ping
  Clock::time_point asked_, last_check_;  // when it was sent; when check_alive() was called last
  Deadline next_look_;
  std::deque<Clock::time_point> deaths_;  // within kRestartWindow
  Events events_;                         // for take()
  std::optional<elastic::ElasticCoordinator::Ending> ending_;
};

}  // namespace cohort::launch
