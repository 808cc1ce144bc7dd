// Sends a new secret to the other ranks of a job that another launcher started on this host.
// Rank 0 listens on an abstract unix socket whose name follows from the user and the launcher's id of the job; the kernel (SO_PEERCRED)
// tells both sides whether the other runs as the same user, and nothing else is trusted. Nothing is on disk.
// Owner: join(). Threads: SecretServer has one of its own. Failure: Kind::system, Kind::timeout naming rank 0, Kind::corrupt for another
// user.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"
#include "cohort/net/auth/control_connection.h"

namespace cohort::group {

struct JobCredentials {
  net::Secret secret;
  net::Address coordinator;
};

// "unix:@cohort.<uid>.<digest of the job's name>": the same on every rank, different for two jobs.
std::string secret_socket_name(const std::string& job);

class SecretServer {
 public:
  // Waits until the deadline where another process still listens at the name.
  SecretServer(const std::string& name, JobCredentials credentials, Deadline deadline);
  ~SecretServer();
  SecretServer(const SecretServer&) = delete;
  SecretServer& operator=(const SecretServer&) = delete;
  void close();  // stops serving and frees the name; any thread

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Asks rank 0 repeatedly until it answers. waiting: called between two attempts.
JobCredentials fetch_secret(const std::string& name, Deadline deadline, const std::function<void()>& waiting);

}  // namespace cohort::group
