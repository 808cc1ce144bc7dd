// What every transport's Mesh has in common: the mailbox, the waiting, the link objects, the watchers. A transport adds how bytes move.
// There is no I/O thread: a thread that waits moves bytes, for every peer. One thread at a time is the driver (it calls step() and
// sleep()); other waiters sleep on the bell and take over when the driver has what it wanted.
// Owner: the concrete Mesh derives from Hub. Threads: any. Failure: see link.h. To add a transport: override the six verbs below, call
// deliver()/arrive()/landed() of the mailbox from step(), lost() when a peer is gone, and stop all own threads before ~Hub runs.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/futex.h"
#include "cohort/net/link.h"
#include "cohort/net/mailbox.h"
#include "cohort/net/watchers.h"

namespace cohort::net {

// A word to sleep on. ring() costs one atomic add while nobody sleeps.
class Bell {
 public:
  std::uint32_t now() const { return word_.load(); }
  void ring();
  void sleep(std::uint32_t seen, Deadline deadline);  // returns at once when it rang since `seen`

 private:
  Word word_{0};
  std::atomic<int> sleepers_{0};
};

// A send that could not leave at once. Shared by the waiter (who lends the bytes) and the transport's queue. The transport reads
// `bytes` between pin() and unpin(), calls set_done() when all have left, then announce() unless its own step() did it.
struct Sending : Borrowed {
  Sending(Rank peer, Tag t, ConstBytes b) : to(peer), tag(t), bytes(b) {}
  const Rank to;
  const Tag tag;
  const ConstBytes bytes;
};

// The words every transport uses.
Error left_error(Rank rank);         // said goodbye
bool left_politely(const Error& e);  // e is that
Error died_error(Rank rank);         // did not
Error aborted_error(Rank by, const Error& cause);

class Hub : public Mesh {
 public:
  Hub(Rank me, int ranks, Epoch epoch, Patience patience);
  ~Hub() override;
  Rank rank() const final { return mailbox_.me(); }
  int size() const final { return mailbox_.ranks(); }
  Epoch epoch() const final { return epoch_; }
  Link& link(Rank peer) final;
  Message next(TagRange range, Deadline deadline) final;
  void discard(TagRange range) final;
  std::optional<Error> failure(Rank peer) const final { return mailbox_.failure(peer); }
  void abort(const Error& error) noexcept final;
  int watch(std::function<void(Rank, const Error&)> on_failure) final;
  void unwatch(int id) final;

 protected:
  // ---- what a transport gives
  // A send to another rank. Done at once: return {}. Else queue a Sending and return pending(sending).
  virtual Pending launch(Rank to, ConstBytes bytes, Tag tag) = 0;
  virtual bool step() = 0;  // driver only: moves what moves without sleeping; true when something moved
  // Driver only: sleeps until something may move, wake() was called after the last step() began, or the deadline.
  virtual void sleep(Deadline deadline) = 0;
  virtual void wake() noexcept = 0;                          // ends sleep() early (or the next one); any thread
  virtual void tell_abort(const Error& error) noexcept = 0;  // to every peer; must not block for long
  virtual void on_failed(Rank) noexcept {}                   // this peer's link just failed: drop its queues
  virtual Patience patience() const { return patience_; }    // driver only, when nothing moved: before the next sleep
  virtual void on_room(Rank) {}                              // the mailbox takes messages of this peer again

  // ---- what a transport uses
  // Until done() is true (checked often: keep it cheap) or the deadline passed (false). Moves bytes meanwhile.
  bool wait_until(const std::function<bool()>& done, Deadline deadline);
  bool poll_once();  // one step() when no other thread drives; true when something moved
  // The first failure of a peer: fails its receives, calls on_failed, wakes everybody, tells the watchers. polite: see Mailbox::fail.
  // After our own abort() its cause is the failure of all, however they end.
  void lost(Rank peer, const Error& how, bool polite = false) noexcept;
  // A step() soon, by this thread or by the driver: for monitors that noticed something step() acts on.
  void prod();
  void announce();  // another thread than the driver changed something a waiter may want: wakes the driver and the others
  Pending pending(std::shared_ptr<Sending> sending);
  [[noreturn]] void throw_failure_of(Rank peer) const;

  Mailbox mailbox_;
  const Patience patience_;

 private:
  friend class HubLink;
  friend class HubReceive;
  friend class HubSend;
  void make_links();
  enum class Driven { done, late, news };
  Driven drive(const std::function<bool()>& done, Deadline deadline);
  bool take_wheel();   // false: another thread drives
  void leave_wheel();  // somebody else takes over; reports what step() noticed
  void serve_prods();
  void after_room(Rank peer);

  const Epoch epoch_;
  std::vector<std::unique_ptr<Link>> links_;
  Bell bell_;                                 // rings for waiters that do not drive
  std::atomic<bool> driving_{false};          // somebody is the driver ..
  std::atomic<std::thread::id> driver_{};     // .. namely
  std::vector<std::pair<Rank, Error>> news_;  // driver only: failures that step() noticed, for the watchers
  std::atomic<bool> prodded_{false};
  std::atomic<bool> aborting_{false}, aborted_{false};
  Error cause_;                  // constant once aborted_
  std::atomic<int> waiting_{0};  // threads in wait_until that do not drive
  Watchers watchers_;
};

}  // namespace cohort::net
