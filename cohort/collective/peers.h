// Peers: what an algorithm sees of the other ranks. Links to all of them, the Board when all share this host's memory, and when only some
// do, these once more as Peers of their own.
// Owner: one communicator. Threads: the one that runs the verb; fail() and check() from any. Failure: sticky, the first cause is kept.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cohort/base/pages.h"
#include "cohort/collective/arena.h"
#include "cohort/collective/board.h"
#include "cohort/collective/courier.h"
#include "cohort/collective/fingerprint.h"
#include "cohort/collective/hosts.h"
#include "cohort/net/link.h"

namespace cohort::collective {

// How an operation on the Board begins: with the first round on everybody's stage, with everybody's buffer reachable in place, or with
// neither.
enum class Opening { staged, in_place, cold };

inline constexpr int kLanes = 8;  // streams of messages of one operation that never meet

class Peers {
 public:
  Peers(std::shared_ptr<net::Mesh> mesh, std::shared_ptr<Arena> arena, std::vector<Rank> members, int me, std::uint32_t channel);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int rank() const { return me_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<Rank>& members() const { return members_; }  // ranks in the mesh
  net::Mesh& mesh() const { return *mesh_; }
  const std::shared_ptr<net::Mesh>& shared_mesh() const { return mesh_; }
  const std::shared_ptr<Arena>& arena() const { return arena_; }
  Courier& courier() { return courier_; }
  Board* board() const { return posted_.load(std::memory_order_acquire); }
  std::uint32_t channel() const { return channel_; }
  const Hosts& hosts() const { return hosts_; }
  // The members on this host, who have a Board: all of us, or some, or nullptr when nobody else is here.
  Peers* inside() { return board() != nullptr ? this : within_.load(std::memory_order_acquire); }

  // Makes the Board when all members share memory: member 0 creates it, the others open it; else inside(), which then has one. Called
  // once, by every member.
  void share_board(Patience patience, Seconds warn_after, Deadline deadline);

  // --- one operation at a time
  void begin(const Fingerprint& print, std::optional<Deadline> deadline, Seconds timeout);
  const Fingerprint& print() const { return print_; }
  Deadline deadline();  // the clock is read at the first wait that takes long enough to care

  // All ranks compare their fingerprints before data moves; throws Kind::usage on every rank alike. Also a barrier.
  // On the Board: `where` says that this rank's buffer can be used in place; without it, fill(stage) puts the first round on our stage.
  template <class Fill>
  Opening open(const std::optional<Where>& where, Fill fill);
  void agree();                // over links
  void sync();                 // Board: one more step of the same operation, filled before the call
  void await();                // Board: until everybody posted the current step
  void await_work(int total);  // Board: until all shared work of the current step is done
  std::byte* reach(int rank);  // that rank's buffer, after an in_place opening
  void compare() const;        // the digests of the current step

  // --- links, tagged with the operation
  net::Pending send(int to, ConstBytes bytes, int lane = 0);
  net::Pending recv(int from, Bytes bytes, int lane = 0);
  void exchange(int to, ConstBytes out, int from, Bytes in);
  void finish(net::Pending& pending) { finish(pending, deadline()); }
  // Any thread. Ends early when the communicator failed: the peer we wait for may be well and itself wait for a lost one.
  void finish(net::Pending& pending, Deadline deadline) const;

  // Memory of at least that many bytes for the running operation; kept for the next one, so that its pages are faulted in once.
  std::byte* scratch(std::size_t bytes) {
    if (scratch_bytes_ < bytes) {
      scratch_ = huge_pages(bytes);
      scratch_bytes_ = bytes;
    }
    return static_cast<std::byte*>(scratch_.get());
  }

  // The same in memory that the ranks of this host reach.
  const Region& lent(std::size_t bytes) {
    if (lent_.bytes() < bytes) lent_ = arena_->allocate(bytes);
    return lent_;
  }

  // --- failure
  // body() while operations under way still live around it: when it fails, peers hear the cause before those are given up.
  template <class Body>
  void or_abort(const Body& body) {
    try {
      body();
    } catch (const Failure& failure) {
      mesh().abort(failure.error());
      throw;
    }
  }
  void fail(const Error& error) noexcept;  // the first one stays, but that a rank left politely is less than any failure
  void check() const;                      // throws it
  // As check(), but a rank that left politely had done its part of what is under way, or whoever misses it will say so.
  void check_others() const;
  bool failed() const { return failed_.load(std::memory_order_relaxed); }

 private:
  Opening conclude();
  void await_loss();  // a peer's memory is gone: throws when it turns out that the peer is
  void make_board(Patience patience, Seconds warn_after, Deadline deadline);
  Tag tag(int lane) const;

  const std::shared_ptr<net::Mesh> mesh_;
  const std::shared_ptr<Arena> arena_;
  const std::vector<Rank> members_;
  const int me_;
  const std::uint32_t channel_;
  const Hosts hosts_;
  std::unique_ptr<Board> board_;         // constant after share_board()
  std::atomic<Board*> posted_{nullptr};  // the same, once it is complete: fail() may come from another thread at any time
  std::unique_ptr<Peers> inside_;        // constant after share_board(): the members on this host, when not all are
  std::atomic<Peers*> within_{nullptr};  // the same
  int watch_ = -1;

  Courier courier_;    // owned by the thread that runs the verb
  Fingerprint print_;  // owned by the thread that runs the verb
  std::optional<Deadline> deadline_;
  Seconds timeout_{};
  std::shared_ptr<void> scratch_;
  std::size_t scratch_bytes_ = 0;
  Region lent_;

  mutable std::mutex mutex_;
  std::optional<Error> error_;  // guarded by mutex_
  std::atomic<bool> failed_{false};
};

template <class Fill>
Opening Peers::open(const std::optional<Where>& where, Fill fill) {
  Board::Card& card = board_->next_card();
  card.print = print_;
  if (where) {
    card.where = *where;
  } else {
    fill(board_->next_stage());
  }
  board_->post(print_.digest, where ? Board::kInRegion : Board::kStaged);
  await();
  return conclude();
}

}  // namespace cohort::collective
