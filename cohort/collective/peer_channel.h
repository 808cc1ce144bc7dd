// A PeerChannel carries messages between two ranks at a time, asynchronously, and fails peer by peer, where a Communicator is all or
// nothing: for parameter servers, gossip, pipelines. comm.channel() opens one, without the other ranks: the n-th that a rank opens talks to
// the n-th of every other rank. Its tags are a space of their own.
//
//   Pending in = channel->recv(Rank{1}, kModel, theirs);   // post the receive first, then wait: see below
//   Pending out = channel->send(Rank{1}, kModel, mine);
//   out.wait(deadline);
//   in.wait(deadline);
//
// Order: the k-th receive of a (peer, tag) meets the k-th send. Lengths must be equal, else both fail with Kind::corrupt (a small send may
// be over by then) and the channel stays usable. Messages to oneself go the same way. Memory: a receive lands in its buffer, a send leaves
// from its own. A small send (kEagerBytes) is complete once it has left, unless its receiver has kEagerWindow of them waiting; any other
// once its receive is posted and the bytes have left, so two ranks that send each other large messages post the receives before they wait.
// What a receiver keeps of a sender is bounded: that window, and a record for each call that the sender still holds. Progress: as in
// docs/adr/0002, by the threads that wait or poll in the channel. A rank that goes on to compute, or into a collective, while others wait
// for it, leaves the channel to a ServiceThread. Owner: who opened it, also after its communicator. Closing it fails the peers' calls to
// this rank, as leaving does. Threads: any. Failure: wrong arguments throw Kind::usage at the call, all else from wait(). A peer that dies,
// leaves or closes its channel fails the calls to it, those under way and all later ones (what it sent before is still received); calls to
// others go on, and nothing is aborted. A collective that fails for the same peer does abort the communicator (docs/adr/0005), and with it
// every call here.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/ids.h"
#include "cohort/collective/types.h"

namespace cohort::collective {

class ChannelCore;
struct Transfer;

// A send or receive under way. Destroying it (or assigning to it) gives it up, and the buffer is the caller's again at once. A receive that
// no send has met is as if it was never posted; one that a send has met loses that message. A send that no receive has met fails the
// receive that will meet it, with Kind::aborted; one whose bytes are moving arrives, what is left of it from a copy.
class Pending {
 public:
  Pending() = default;
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other) noexcept;
  ~Pending();
  // Returns or throws how it ended; empty afterwards. Kind::timeout at the deadline: it is still under way, wait again or give it up.
  void wait(Deadline deadline);
  bool poll();  // true once it has ended; makes progress, never sleeps
  explicit operator bool() const { return transfer_ != nullptr; }

 private:
  friend class PeerChannel;
  explicit Pending(std::shared_ptr<Transfer> transfer) : transfer_(std::move(transfer)) {}
  std::shared_ptr<Transfer> transfer_;  // shared with the channel, which moves it on
};

// Thrown by the waits of a channel after interrupt().
class Interrupted : public Failure {
 public:
  using Failure::Failure;
};

class PeerChannel {
 public:
  static constexpr std::size_t kInlineBytes = 256;    // travels inside the record that announces it
  static constexpr std::size_t kEagerBytes = 64_KiB;  // below what the links hold back (Mailbox::kLargeBytes)
  static constexpr std::size_t kEagerWindow = 1_MiB;  // of small messages that one peer has not received, records included

  explicit PeerChannel(std::shared_ptr<ChannelCore> core);  // comm.channel()
  ~PeerChannel();                                           // calls under way are given up; does not wait for peers
  PeerChannel(const PeerChannel&) = delete;
  PeerChannel& operator=(const PeerChannel&) = delete;

  Rank rank() const;
  int size() const;
  Pending send(Rank to, std::uint32_t tag, Piece data);
  Pending recv(Rank from, std::uint32_t tag, Piece data);
  // The index of one that has ended, well or not: its wait() returns or throws at once. Empty ones are passed over. The search begins
  // behind the last index found, so each gets its turn. Kind::timeout at the deadline, Kind::usage when all are empty.
  std::size_t wait_any(std::span<Pending> pendings, Deadline deadline);
  std::optional<Error> lost(Rank peer) const;  // why calls to this peer fail, when they do; known soon, also while nobody waits
  void interrupt() noexcept;                   // every wait on this rank, now and later, ends with Interrupted; what is under way stays so

 private:
  const std::shared_ptr<ChannelCore> core_;  // shared with the Pendings
};

}  // namespace cohort::collective
