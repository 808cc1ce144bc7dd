// The ElasticCoordinator is Elastic (elastic.h) with a port, a log and a clock: workers connect, what they say becomes events, decisions
// are on disk before anybody hears of them, and actions leave as frames (orders.h). It lives in the launcher as one thread that polls.
// Strangers are turned away by the handshake; a worker that talks nonsense loses its connection, nobody else does.
// Owner: the launcher. Threads: any may call; callbacks run on the coordinator's own. Failure: the constructor throws (as DecisionLog);
// a log that takes no more ends the job, since what cannot be written must not be told.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/group/elastic_types.h"
#include "cohort/net/wire.h"

namespace cohort::group {

// A worker's process, as the roster names it: hosts number theirs each for themselves.
struct Process {
  std::int64_t pid = 0;
  std::string host = kThisHost;
  auto operator<=>(const Process&) const = default;
};

// Processes that work for the job, or did and were seen to end.
struct Workforce {
  std::vector<Process> running, ended;
  int owed = 0;  // asked for, and not started yet
};

struct ElasticCoordinatorOptions {
  ElasticRules rules;
  net::Secret secret;
  std::string log;                                          // file of decisions (decision_log.h)
  std::function<void(const std::string&)> say;              // one line for people
  std::function<void(int)> respawn;                         // so many workers are to be started
  std::function<void(const Process&)> goodbye{};            // the job has let it go, or told it that all is over: it ends by itself
  std::function<void(const Process&)> rejoined{};           // it was left behind and came back as a new worker: a replacement is not needed
  std::function<void()> began{};                            // formed() is true from now on
  std::function<void(const std::optional<Error>&)> over{};  // ending() has this answer
  int log_file = -1;                                        // instead of `log`: a file that is open and may have no name
  Workforce workforce{};                                    // as the launcher knows it, when it is not the first that coordinates this job
};

class ElasticCoordinator {
 public:
  ElasticCoordinator(ElasticCoordinatorOptions options, net::Listener listener);
  ~ElasticCoordinator();  // sends what it has begun to send, then ends: within a second
  ElasticCoordinator(const ElasticCoordinator&) = delete;
  ElasticCoordinator& operator=(const ElasticCoordinator&) = delete;

  const net::Address& address() const;
  // A worker's process is gone: somebody saw it end. One that had not arrived counts as a start that failed.
  void process_ended(Process process, std::string how);
  // Its host was lost, and nobody saw it end: it may still train where nobody hears it. What its connection says counts, unless it has
  // none.
  void process_vanished(Process process, std::string how);
  void spawn_failed(std::string why);
  bool formed() const;  // there has been an epoch

  struct Ending {
    std::optional<Error> error;  // none: trained to the end
  };
  std::optional<Ending> ending() const;  // none: the job goes on

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::group
