// What the ranks of a job need to find each other, kept alive by the launcher for as long as the job runs: the coordinator, the secret,
// and a port that is theirs to use as MASTER_PORT (job_resources.h).
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
#include "cohort/elastic/elastic_coordinator.h"
#include "cohort/group/rendezvous.h"
#include "cohort/launch/coordinator_process.h"
#include "cohort/launch/job_resources.h"

namespace cohort::launch {

struct JobRendezvousOptions {
  std::string job;
  int ranks = 1;
  Seconds start_timeout{30};
  int master_port = 0;                             // 0: a free one
  net::Secret secret{};                            // empty: a fresh one
  net::Address listen{"127.0.0.1", 0};             // of the coordinator
  bool tls = false;                                // connections go through TLS
  std::string external_coordinator{};              // host:port of a coordinator elsewhere; empty: it is here
  std::optional<elastic::ElasticRules> elastic{};  // workers come and go; its job is filled in here
  bool supervised = false;                         // and their coordinator is a process of its own, started again when it dies
};

class JobRendezvous {
 public:
  // The port and the secret exist at once; open() starts the coordinator's thread, after the last fork.
  explicit JobRendezvous(JobRendezvousOptions options);
  void open();

  const std::string& job() const { return options_.job; }
  const std::string& launch() const { return launch_; }  // its number: another launch of the same name has another one
  const std::string& address() const { return address_; }
  std::string secret_file() const { return secret_file_.path(); }
  const net::Secret& secret() const { return options_.secret; }
  int port() const { return port_; }  // of the coordinator
  int master_port() const { return master_port_.number(); }

  void rank_ended(int rank, const std::string& how);
  int lines_fd() const { return process_ ? process_->fd() : wake_.get(); }  // readable when take_lines() has something
  std::vector<std::string> take_lines();

  // --- an elastic job
  void process_ended(const elastic::Process& process, const std::string& how);
  void process_vanished(const elastic::Process& process, const std::string& how);  // with its host
  void spawn_failed(const std::string& why);
  int take_wanted();                               // workers to start, since it was asked last
  int take_rejoined();                             // workers that came back by themselves, likewise
  bool released(const elastic::Process& process);  // the job does not need it any more: it ends by itself
  bool formed();
  bool committed();                 // a step of the job was
  std::vector<Begun> take_begun();  // parts in membership epochs, since it was asked last
  std::optional<elastic::ElasticCoordinator::Ending> ending() const;
  // Its coordinator, where it is a process of its own.
  void child_ended(pid_t pid, int status);  // perhaps it
  Deadline next_look() const { return process_ ? process_->next_look() : Deadline{}; }
  void check_coordinator() {
    if (process_) process_->check_alive();
  }
  bool coordinator_due() const { return process_ && process_->due(); }
  void restart_coordinator(elastic::Workforce workforce) { process_->start(std::move(workforce)); }
  pid_t coordinator() const { return process_ ? process_->pid() : -1; }
  void close();  // the job is over

 private:
  void open_elastic();
  void receive();  // from a coordinator in a process of its own
  const JobRendezvousOptions options_;
  const std::string launch_;
  net::Listener listener_;  // until open()
  std::string address_;
  int port_ = 0;
  SecretFile secret_file_;
  ReservedPort master_port_;
  Fd wake_;

  std::mutex mutex_;
  std::vector<std::string> lines_;       // guarded by mutex_
  int wanted_ = 0, rejoined_ = 0;        // guarded by mutex_
  std::set<elastic::Process> released_;  // guarded by mutex_
  std::vector<Begun> begun_;             // guarded by mutex_
  bool committed_ = false;               // guarded by mutex_

  std::unique_ptr<group::RendezvousServer> coordinator_;  // these two last: their threads use all of the above
  std::unique_ptr<elastic::ElasticCoordinator> elastic_;
  std::unique_ptr<CoordinatorProcess> process_;
};

std::string random_job_name();  // "run-5f3a9c01d2e4"
std::string random_number();    // "5f3a9c01d2e4"

}  // namespace cohort::launch
