// The coordinator of an elastic job as a process of its own (--supervised). It may die, by whatever signal, and is started again; the
// launcher is then its supervisor and stays:
//
//   shell -- front -- supervisor -- coordinator
//                         '-------- rank 0, rank 1, ..   or, on several hosts, the remote shells of their agents
//
// The supervisor keeps what must outlive a coordinator: the listening socket (workers that look for it find the same port, and wait in its
// queue meanwhile), the secret, the log of decisions (a file without a name, so that nothing is left of it), the ranks and their output. It
// starts workers when it is asked to, and tells how processes ended; one that is started again hears of all of them. The two talk over a
// socket pair. The coordinator is forked, not executed anew: a program that was replaced on disk cannot meet the log of another version.
// Owner: Meeting. Threads: one, and no other may run in this process when it forks. Failure: Kind::system; a coordinator that dies more
// than kStarts times within kWithin is given up, and ending() says why.
#pragma once
#include <sys/types.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"
#include "cohort/group/elastic_coordinator.h"

namespace cohort::cli {

class CoordinatorProcess {
 public:
  static constexpr int kStarts = 5;  // again, within ..
  static constexpr Seconds kWithin{60};

  CoordinatorProcess(group::ElasticRules rules, const net::Secret& secret, net::Listener listener);
  ~CoordinatorProcess();  // as close()
  CoordinatorProcess(const CoordinatorProcess&) = delete;
  CoordinatorProcess& operator=(const CoordinatorProcess&) = delete;

  void start(group::Workforce workforce);
  pid_t pid() const { return pid_; }  // -1: none runs
  int fd() const { return channel_.get(); }

  void child_ended(pid_t pid, int status);  // a child of this process, as waitpid tells it: perhaps the coordinator
  bool due() const { return due_; }         // it was, and start() is to be called
  void close();                             // its work is done: it ends, and is not started again

  void process_ended(const group::Process& process, const std::string& how);
  void process_vanished(const group::Process& process, const std::string& how);
  void spawn_failed(const std::string& why);

  // What it said since it was asked last.
  struct News {
    std::vector<std::string> lines;
    int wanted = 0, rejoined = 0;  // workers to start; workers that came back by themselves
    std::vector<group::Process> let_go;
  };
  News take();
  bool formed() const { return formed_; }
  const std::optional<group::ElasticCoordinator::Ending>& ending() const { return ending_; }

 private:
  void hear();
  void tell(char what, std::int64_t number, const std::string& text);

  const group::ElasticRules rules_;
  const net::Secret secret_;
  net::Listener listener_;  // closed when the coordinator is given up
  const Fd log_;
  Fd channel_;
  pid_t pid_ = -1;
  bool due_ = false, closed_ = false, formed_ = false;
  std::deque<Clock::time_point> deaths_;  // within kWithin
  News news_;                             // for take()
  std::optional<group::ElasticCoordinator::Ending> ending_;
};

}  // namespace cohort::cli
