// What the ranks of a job need to find each other, kept alive by the launcher for as long as the job runs: the coordinator, the secret,
// and a port that is theirs to use as MASTER_PORT (run_holdings.h).
// Threads: the launcher's; lines of the coordinator's thread wait in a queue. Failure: Kind::system.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"
#include "cohort/cli/run_holdings.h"
#include "cohort/cli/run_supervised.h"
#include "cohort/group/elastic_coordinator.h"
#include "cohort/group/rendezvous.h"

namespace cohort::cli {

struct MeetingPlan {
  std::string job;
  int ranks = 1;
  Seconds start_timeout{30};
  int master_port = 0;                           // 0: a free one
  net::Secret secret{};                          // empty: a fresh one
  net::Address listen{"127.0.0.1", 0};           // of the coordinator
  bool tls = false;                              // connections go through TLS
  std::string elsewhere{};                       // host:port of a coordinator that somebody else holds; empty: we do
  std::optional<group::ElasticRules> elastic{};  // workers come and go; its job is filled in here
  bool supervised = false;                       // and their coordinator is a process of its own, started again when it dies
};

class Meeting {
 public:
  // The port and the secret exist at once; open() starts the coordinator's thread, after the last fork.
  explicit Meeting(MeetingPlan plan);
  void open();

  const std::string& job() const { return plan_.job; }
  const std::string& address() const { return address_; }
  std::string secret_file() const { return held_secret_.path(); }
  const net::Secret& secret() const { return plan_.secret; }
  int port() const { return port_; }  // of the coordinator
  int master_port() const { return master_port_.number(); }

  void rank_ended(int rank, const std::string& how);
  int lines_fd() const { return process_ ? process_->fd() : wake_.get(); }  // readable when take_lines() has something
  std::vector<std::string> take_lines();

  // --- an elastic job
  void process_ended(const group::Process& process, const std::string& how);
  void process_vanished(const group::Process& process, const std::string& how);  // with its host
  void spawn_failed(const std::string& why);
  int take_wanted();                           // workers to start, since it was asked last
  int take_rejoined();                         // workers that came back by themselves, likewise
  bool let_go(const group::Process& process);  // it was told that it may end
  bool formed();
  std::optional<group::ElasticCoordinator::Ending> ending() const;
  // Its coordinator, where it is a process of its own.
  void child_ended(pid_t pid, int status);  // perhaps it
  bool coordinator_due() const { return process_ && process_->due(); }
  void open_again(group::Workforce workforce) { process_->start(std::move(workforce)); }
  pid_t coordinator() const { return process_ ? process_->pid() : -1; }
  void close();  // the job is over

 private:
  void open_elastic();
  void hear();  // what a coordinator in a process of its own has said
  const MeetingPlan plan_;
  net::Listener listener_;  // until open()
  std::string address_;
  int port_ = 0;
  HeldSecret held_secret_;
  HeldPort master_port_;
  Fd wake_;

  std::mutex mutex_;
  std::vector<std::string> lines_;   // guarded by mutex_
  int wanted_ = 0, rejoined_ = 0;    // guarded by mutex_
  std::set<group::Process> let_go_;  // guarded by mutex_

  std::unique_ptr<group::Coordinator> coordinator_;  // these two last: their threads use all of the above
  std::unique_ptr<group::ElasticCoordinator> elastic_;
  std::unique_ptr<CoordinatorProcess> process_;
};

std::string random_job_name();  // "run-5f3a9c01d2e4"

}  // namespace cohort::cli
