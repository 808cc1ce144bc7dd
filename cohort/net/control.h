// How the ranks of one host learn that a peer left, aborted or died: beside the data, by one monitor thread, also while nobody waits.
// Two ways: over Wires between processes (an end without goodbye is a death), or through last words in shared memory between threads.
// Owner: the shm mesh. Threads: any; events come from the monitor thread. Failure: a broken wire is the loss of that peer.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/ids.h"
#include "cohort/net/hub.h"
#include "cohort/net/shm_ring.h"
#include "cohort/net/wire.h"

namespace cohort::net {

class Control {
 public:
  struct Events {
    std::function<void(Rank, const Error&)> lost;  // aborted, died, broken
    std::function<void(Rank)> left;                // said goodbye: what it sent before still counts
  };
  virtual ~Control() = default;                         // stops the monitor
  virtual void abort(const Error& cause) noexcept = 0;  // tells every peer; at most a second in all
  virtual void goodbye() noexcept = 0;
};

std::unique_ptr<Control> wire_control(Rank me, std::vector<std::optional<Wire>> wires, Control::Events events);
std::unique_ptr<Control> memory_control(Rank me, Inbox own, std::vector<Inbox> peers, Control::Events events);

}  // namespace cohort::net
