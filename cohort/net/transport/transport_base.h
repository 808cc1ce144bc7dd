// What every transport's PeerLinks has in common: the mailbox, waiting, the link objects, the watchers. A transport adds how bytes move.
// There is no I/O thread: a thread that waits makes progress for every peer. One thread at a time is the driver (it calls step() and
// sleep()); other waiters sleep on the EventCount, and one of them becomes the driver when the driver's own wait is over.
// Owner: the concrete PeerLinks derives from TransportBase. Threads: any. Failure: see link.h. To add a transport: override the virtual
// functions below, call deliver()/arrive()/finish() of the mailbox from step(), lost() when a peer is gone, and stop all own threads before
// ~TransportBase runs.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/futex.h"
#include "cohort/net/transport/link.h"
#include "cohort/net/transport/mailbox.h"
#include "cohort/net/transport/watchers.h"

namespace cohort::net {

// A futex with a counter: wait for the next notification. notify() costs one atomic add while nobody sleeps.
class EventCount {
 public:
  std::uint32_t now() const { return word_.load(); }
  void notify();
  void sleep(std::uint32_t seen, Deadline deadline);  // returns at once when there was a notification since `seen`

 private:
  Word word_{0};
  std::atomic<int> sleepers_{0};
};

// A send that did not complete at once. Shared by the waiter, whose bytes these are, and the transport's queue. The transport reads
// `bytes` between pin() and unpin(), calls set_done() when all are sent, then announce() unless its own step() did it.
struct Sending : BorrowedBuffer {
  Sending(Rank peer, Tag t, ConstBytes b) : to(peer), tag(t), bytes(b) {}
  // From here on `bytes` is a copy, and the caller's memory is its own again. False: not now, the network card reads it, or no memory.
  bool take_copy() noexcept;
  const Rank to;
  const Tag tag;
  ConstBytes bytes;             // changed by take_copy() alone: read between pin() and unpin()
  std::atomic<int> in_card{0};  // sends without a copy that the kernel has not released

 private:
  std::vector<std::byte> copy_;
};

// The errors every transport uses.
Error left_error(Rank rank);         // sent a goodbye
bool left_politely(const Error& e);  // e is that
Error died_error(Rank rank);         // ended without a goodbye
Error aborted_error(Rank by, const Error& cause);
bool aborted_by(Rank peer, const Error& e);              // e is that: the peer aborted all its links, not the one to us
Error link_given_up_error(Rank by, const Error& cause);  // its link to us failed there, and no other

class TransportBase : public PeerLinks {
 public:
  TransportBase(Rank me, int ranks, Epoch epoch, SpinPolicy patience);
  ~TransportBase() override;
  Rank rank() const final { return mailbox_.me(); }
  int size() const final { return mailbox_.ranks(); }
  Epoch epoch() const final { return epoch_; }
  Link& link(Rank peer) final;
  Message next(TagRange range, Deadline deadline) final;
  std::optional<Message> try_next(TagRange range) final { return mailbox_.take(range); }
  bool await(const std::function<bool()>& done, Deadline deadline) final;
  bool poll_once() final;  // one step() when no other thread drives
  void wake_waiters() noexcept final { announce(); }
  void discard(TagRange range) final;
  std::optional<Error> failure(Rank peer) const final { return mailbox_.failure(peer); }
  void abort(const Error& error) noexcept final;
  int watch(std::function<void(Rank, const Error&)> on_failure) final;
  void unwatch(int id) final;

 protected:
  // ---- what a transport implements
  // A send to another rank. Done at once: return {}. Else queue a Sending and return pending(sending).
  virtual Pending launch(Rank to, ConstBytes bytes, Tag tag) = 0;
  virtual bool step() = 0;  // driver only: makes progress without sleeping; true when something moved
  // Driver only: sleeps until something may move, wake() was called after the last step() began, or the deadline.
  virtual void sleep(Deadline deadline) = 0;
  virtual void wake() noexcept = 0;                          // ends sleep() early (or the next one); any thread
  virtual void send_abort(const Error& error) noexcept = 0;  // to every peer; must not block for long
  virtual void on_failed(Rank) noexcept {}                   // this peer's link just failed: drop its queues
  virtual SpinPolicy patience() const { return patience_; }  // driver only, when nothing moved: before the next sleep
  virtual void on_room(Rank) {}                              // the mailbox takes messages of this peer again

  // ---- what a transport uses
  // Until done() is true (checked often: keep it cheap) or the deadline passed (false). Makes progress meanwhile.
  bool wait_until(const std::function<bool()>& done, Deadline deadline);
  // The first failure of a peer: fails its receives, calls on_failed, wakes all waiters, calls the watchers. polite: see Mailbox::fail.
  // After our own abort() its cause is the failure of all peers, however they end.
  void lost(Rank peer, const Error& how, bool polite = false) noexcept;
  // A step() soon, by this thread or by the driver: for monitors that detected something step() acts on.
  void request_step();
  void announce();  // a thread other than the driver changed something that a waiter may wait for: wakes the driver and the others
  Pending pending(std::shared_ptr<Sending> sending);
  [[noreturn]] void throw_failure_of(Rank peer) const;

  Mailbox mailbox_;
  const SpinPolicy patience_;

 private:
  friend class TransportLink;
  friend class TransportReceive;
  friend class TransportSend;
  void make_links();
  enum class Driven { done, late, peer_failed };
  Driven drive(const std::function<bool()>& done, Deadline deadline);
  bool become_driver();  // false: another thread drives
  void stop_driving();   // another waiter takes over; reports the failures that step() detected
  void serve_step_requests();
  void after_room(Rank peer);

  const Epoch epoch_;
  std::vector<std::unique_ptr<Link>> links_;
  EventCount event_count_;                          // for waiters that do not drive
  std::atomic<bool> driving_{false};                // some thread is the driver ..
  std::atomic<std::thread::id> driver_{};           // .. this one
  std::vector<std::pair<Rank, Error>> unreported_;  // driver only: failures that step() detected, for the watchers
  std::atomic<bool> step_requested_{false};
  std::atomic<bool> aborting_{false}, aborted_{false};
  Error cause_;                  // constant once aborted_
  std::atomic<int> waiting_{0};  // threads in wait_until that do not drive
  Watchers watchers_;
};

}  // namespace cohort::net
