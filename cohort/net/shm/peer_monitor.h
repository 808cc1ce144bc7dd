// How the ranks of one host learn that a peer left, aborted or died: apart from the data, by one monitor thread, also while nobody waits.
// Two ways: over ControlConnections between processes (an end without a goodbye is a death), or through the exit state in shared memory
// between threads. Owner: ShmRings. Threads: any; events come from the monitor thread. Failure: a broken connection is the loss of that
// peer.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/ids.h"
#include "cohort/net/auth/control_connection.h"
#include "cohort/net/shm/ring.h"
#include "cohort/net/transport/transport_base.h"

namespace cohort::net {

class PeerMonitor {
 public:
  struct Events {
    std::function<void(Rank, const Error&)> lost;  // aborted, died, broken
    std::function<void(Rank)> left;                // its goodbye came: what it sent before can still be received
  };
  virtual ~PeerMonitor() = default;                     // stops the monitor
  virtual void abort(const Error& cause) noexcept = 0;  // sent to every peer; takes at most a second in all
  virtual void goodbye() noexcept = 0;
};

std::unique_ptr<PeerMonitor> connection_peer_monitor(Rank me, std::vector<std::optional<ControlConnection>> connections,
                                                     PeerMonitor::Events events);
std::unique_ptr<PeerMonitor> memory_peer_monitor(Rank me, Inbox own, std::vector<Inbox> peers, PeerMonitor::Events events);

}  // namespace cohort::net
