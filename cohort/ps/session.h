// A Session gives ranks parameter servers and each worker its Client, over a peer channel of a communicator:
//   ps::Session session(job.comm(), {.servers = 2});       // threads of ranks 0 and 1, beside their work; 0: of all ranks
//   ps::Session session(job.comm(), {.servers = 2, .dedicated = true});      // the last two ranks do nothing else
//   if (session.works()) { ps::Client& client = session.client(); ... }
// Collective to open; its end is not: it says bye, and where this rank has a server it goes on until all workers have said theirs, at most
// `patience`. Ended by an exception it says none and waits for nobody: others hear that this worker, and its server, are lost.
// Owner: the caller; the communicator is borrowed to open. Threads: as Client. Failure: Kind::usage for a number of servers that cannot be.
#pragma once
#include <memory>

#include "cohort/collective/communicator.h"
#include "cohort/ps/client.h"

namespace cohort::ps {

struct SessionOptions {
  int servers = 0;         // 0: one on every rank
  bool dedicated = false;  // the last ranks serve, and are no workers
  Seconds patience{300};   // of a worker for a server's answer, with ranks that compute between
};

class Session {
 public:
  Session(collective::Communicator& comm, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool works() const { return client_ != nullptr; }
  Client& client();  // Kind::usage on a rank that only serves
  int workers() const { return workers_; }
  int servers() const { return servers_; }

 private:
  class Thread;
  const Seconds patience_;
  const int exceptions_;
  int workers_ = 0, servers_ = 0;
  std::unique_ptr<Thread> thread_;
  std::unique_ptr<Client> client_;  // after the thread, whose channel it uses
};

}  // namespace cohort::ps
