// A Link carries messages to and from one peer, matched by tag. A PeerLinks holds one rank's links to all its peers for one epoch.
// Owner: PeerLinks owns its Links; a Communicator shares the PeerLinks. Threads: any. There is no I/O thread: a thread that waits
// makes progress for every peer (docs/adr/0002). Failure: sticky per peer, see fail(). To add a transport: docs/architecture.md#transport.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/deadline.h"
#include "cohort/base/error.h"
#include "cohort/base/ids.h"

namespace cohort::net {

// A send or receive in progress (a request, in MPI's terms). Its buffer stays borrowed until wait() returned or threw, or the Pending is
// destroyed, which cancels: a receive no longer touches its buffer, and a message half way into it is lost; a send that was not complete
// fails the link, since half a message cannot be taken back. A Pending must not outlive its PeerLinks.
class Pending {
 public:
  struct State {
    virtual ~State() = default;
    virtual void wait(Deadline deadline) = 0;  // throws the link's Failure, or Kind::timeout naming peer, direction and tag
    virtual bool poll() = 0;                   // true once done or failed; makes progress, never sleeps
    virtual bool done() const = 0;             // the same without progress: a load or two
    virtual void detach() = 0;                 // see below
  };
  Pending() = default;
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  void wait(Deadline deadline) {
    if (auto state = std::move(state_)) state->wait(deadline);
  }
  // As wait(), but a deadline that passes is no failure: false, still in progress, wait again.
  bool wait_until(Deadline deadline) {
    if (!state_) return true;
    try {
      state_->wait(deadline);
    } catch (const Failure& failure) {
      if (failure.kind() == Kind::timeout && !state_->poll()) return false;
      const auto state = std::move(state_);
      if (failure.kind() != Kind::timeout) throw;
      state->wait(deadline);  // it ended in the same moment: get its result
      return true;
    }
    state_.reset();
    return true;
  }
  bool poll() { return !state_ || state_->poll(); }
  bool done() const { return !state_ || state_->done(); }
  // Gives the buffer back at once and lets go of the message without failing the link: a send goes on from a copy of it, and the message of
  // a receive is dropped when it comes. A send that the network card reads in place is waited for, at most a second; when the peer's host
  // takes nothing in that time, the link fails as above.
  void detach() {
    if (auto state = std::move(state_)) state->detach();
  }

 private:
  std::shared_ptr<State> state_;  // shared with the transport, which completes it
};

// A message taken from any peer; it owns its bytes.
struct Message {
  Rank from;
  Tag tag;
  std::vector<std::byte> bytes;
};

class Link {
 public:
  virtual ~Link() = default;
  // Sends of one (peer, tag) arrive in order; messages of different tags may be received in any order.
  virtual Pending send(ConstBytes bytes, Tag tag) = 0;
  // The message must be exactly as long as the buffer, else the receive fails with Kind::corrupt naming both lengths
  // and the link stays usable.
  virtual Pending recv(Bytes bytes, Tag tag) = 0;
  // Sticky: every pending and later call on this link fails with this error (the first one given wins).
  virtual void fail(const Error& error) noexcept = 0;
};

class PeerLinks {
 public:
  // Sends a goodbye to the peers; never blocks longer than a second. Their links to us fail with Kind::peer_lost ("rank 2 left"), but
  // what we sent before stays receivable.
  virtual ~PeerLinks() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  virtual Epoch epoch() const = 0;
  virtual std::string_view transport() const = 0;  // "shm", "tcp", "mixed", "loopback"
  // True when every peer's Segment can be opened from here (and ours from there): shared-memory collectives may be used.
  virtual bool shares_memory() const = 0;
  // Ranks with the same number map each other's memory, as above: the ranks of one host, where there are several. The same on every rank.
  virtual int host(Rank peer) const { return shares_memory() ? 0 : peer.value; }
  virtual Link& link(Rank peer) = 0;  // peer == rank() is allowed: a link to oneself
  // The next message of the range from any peer (MPI_ANY_SOURCE), in order of arrival. Fails when any peer it could come from has failed
  // and nothing of the range is waiting.
  virtual Message next(TagRange range, Deadline deadline) = 0;
  // The same, or nothing when none of the range has arrived. Makes no progress and does not fail.
  virtual std::optional<Message> try_next(TagRange range) = 0;
  // Until done() is true or the deadline passed (false): what waits for one of several Pendings, or for messages, does it here. done() is
  // called often, by this thread, with no lock held; it may start sends and receives, and must neither wait nor throw. Meanwhile messages
  // of all peers are read on, as in next().
  virtual bool await(const std::function<bool()>& done, Deadline deadline) = 0;
  virtual bool poll_once() = 0;              // a step of progress, if no other thread is at it; true when something moved; never sleeps
  virtual void wake_waiters() noexcept = 0;  // those in await() ask done() again: it depends on something else that changed
  // Drops unexpected messages of the range (left over by a finished or failed operation).
  virtual void discard(TagRange range) = 0;
  // The first failure of that peer, if any. Killed peers are detected within 100 ms even while nobody waits for them.
  virtual std::optional<Error> failure(Rank peer) const = 0;
  // Fails every link here and tells every peer, whose links to us fail with Kind::aborted and this text as the cause.
  virtual void abort(const Error& error) noexcept = 0;
  // Called once for each peer that fails, from the thread that detected it (monitor or waiter), with no lock held.
  // Failures of several peers may be reported at the same time. Returns an id for unwatch(); a failure that happened before watch()
  // is reported during watch(). unwatch() returns only after running callbacks have ended, unless a callback itself calls it.
  virtual int watch(std::function<void(Rank, const Error&)> on_failure) = 0;
  virtual void unwatch(int id) = 0;
};

}  // namespace cohort::net
