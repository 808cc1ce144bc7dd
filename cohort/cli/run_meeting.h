// What the ranks of a job need to find each other, kept alive by the launcher for as long as the job runs: the coordinator, the secret in a
// memfd (nothing on disk, gone with us), and a port that is theirs to use as MASTER_PORT.
// Threads: the launcher's; lines of the coordinator's thread wait in a queue. Failure: Kind::system.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"
#include "cohort/group/rendezvous.h"

namespace cohort::cli {

class Meeting {
 public:
  // The port and the secret exist at once; open() starts the coordinator's thread, after the last fork.
  Meeting(std::string job, int ranks, Seconds start_timeout, int master_port);
  void open();

  const std::string& job() const { return job_; }
  std::string address() const { return address_; }
  std::string secret_file() const;
  int master_port() const { return master_port_; }

  void rank_ended(int rank, const std::string& how);
  int lines_fd() const { return wake_.get(); }  // readable when take_lines() has something
  std::vector<std::string> take_lines();

 private:
  void hold_master_port(int wanted);
  void hold_secret();

  const std::string job_;
  const int ranks_;
  const Seconds start_timeout_;
  net::Secret secret_;
  net::Listener listener_;  // until open()
  std::string address_;
  Fd secret_fd_;
  Fd master_socket_;  // bound, never listening: the system gives the port to nobody else, and the program may still listen on it
  int master_port_ = 0;
  Fd wake_;

  std::mutex mutex_;
  std::vector<std::string> lines_;  // guarded by mutex_

  std::unique_ptr<group::Coordinator> coordinator_;  // last: its thread uses all of the above
};

std::string random_job_name();  // "run-5f3a9c01d2e4"

}  // namespace cohort::cli
