// The ElasticCoordinator is Membership (membership.h) with a port, a log and a clock: workers connect, their messages become events,
// decisions are on disk before they are sent, and actions are sent as frames (control_messages.h). It is one polling thread of the
// launcher. Unauthenticated peers are refused by the handshake; a worker that sends invalid bytes loses its connection, no other does.
// Owner: the launcher. Threads: any may call; callbacks run on the coordinator's own. Failure: the constructor throws (as DecisionLog);
// a log that cannot be written ends the job, since a decision that is not on disk must not be sent.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/elastic/elastic_types.h"
#include "cohort/net/auth/control_connection.h"
#include "cohort/net/socket/listener.h"

namespace cohort::elastic {

// A worker's process: pids are unique on one host only.
struct Process {
  std::int64_t pid = 0;
  std::string host = group::kThisHost;
  auto operator<=>(const Process&) const = default;
};

// The job's processes that run, and those that were seen to end.
struct Workforce {
  std::vector<Process> running, ended;
  int pending = 0;  // requested, and not started yet
};

struct ElasticCoordinatorOptions {
  ElasticRules rules;
  net::Secret secret;
  std::string log;                                           // file of decisions (decision_log.h)
  std::function<void(const std::string&)> say;               // one line for the log of the job
  std::function<void(int)> respawn;                          // start so many workers
  std::function<void(const Process&)> released{};            // the job has released it or is over: it ends by itself
  std::function<void(const Process&)> rejoined{};            // it was evicted and joined again as a new worker: no replacement is needed
  std::function<void()> first_epoch{};                       // formed() is true from now on
  std::function<void(const Process&, Epoch, Rank)> begun{};  // it is that rank of this epoch; before it is told so
  std::function<void()> alive{};                             // the answer to ping()
  std::function<void()> first_commit{};                      // a step was committed
  std::function<void(const std::optional<Error>&)> over{};   // ending() has this answer
  int log_file = -1;                                         // instead of `log`: an open file, which may have no name
  std::optional<double> silence_limit{};                     // seconds without an answer, before workers give it up; none: wait_limit
  Workforce workforce{};                                     // of a restarted coordinator: what the launcher knows of the processes
};

class ElasticCoordinator {
 public:
  ElasticCoordinator(ElasticCoordinatorOptions options, net::Listener listener);
  ~ElasticCoordinator();  // finishes sends under way; within a second
  ElasticCoordinator(const ElasticCoordinator&) = delete;
  ElasticCoordinator& operator=(const ElasticCoordinator&) = delete;

  const net::Address& address() const;
  // A worker's process was seen to end. One that had not connected counts as a start that failed.
  void process_ended(Process process, std::string how);
  // Its host was lost, and its end was not seen: it may still train, unreachable. Its connection, if it has one, decides whether it is
  // lost.
  void process_vanished(Process process, std::string how);
  void spawn_failed(std::string why);
  void ping();          // its thread answers with options.alive
  bool formed() const;  // there has been an epoch

  struct Ending {
    std::optional<Error> error;  // none: trained to the end
  };
  std::optional<Ending> ending() const;  // none: the job goes on

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::elastic
