// Handing a fresh secret to the other ranks of a job that somebody else's launcher started on this host.
// Rank 0 listens on an abstract unix socket whose name follows from the user and the launcher's name for the job; the kernel
// (SO_PEERCRED) tells both sides whether the other runs as the same user, and nothing else is believed. Nothing is on disk.
// Owner: join(). Threads: Handover has one of its own. Failure: Kind::system, Kind::timeout naming rank 0, Kind::corrupt for another user.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"
#include "cohort/net/wire.h"

namespace cohort::group {

struct Handed {
  net::Secret secret;
  net::Address coordinator;
};

// "unix:@cohort.<uid>.<digest of the job's name>": the same on every rank, different for two jobs.
std::string handover_name(const std::string& job);

class Handover {
 public:
  // Waits for the name when another process still holds it, until the deadline.
  Handover(const std::string& name, Handed what, Deadline deadline);
  ~Handover();
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;
  void close();  // from now on nobody is served, and the name is free; any thread

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Asks rank 0, again and again until it is there. say: called now and then while it is not.
Handed receive_handover(const std::string& name, Deadline deadline, const std::function<void()>& say);

}  // namespace cohort::group
