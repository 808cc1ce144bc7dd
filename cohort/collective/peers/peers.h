// Peers: what an algorithm sees of the other ranks. Links to all of them, the SharedControlBlock when all share this host's memory, and
// when only some do, these once more as Peers of their own. Owner: one communicator. Threads: the one that runs the collective; fail() and
// check() from any. Failure: sticky, the first cause is kept.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cohort/base/pages.h"
#include "cohort/collective/fingerprint.h"
#include "cohort/collective/plans/hosts.h"
#include "cohort/collective/shared/arena.h"
#include "cohort/collective/shared/control_block.h"
#include "cohort/collective/shared/staging_copy.h"
#include "cohort/net/transport/link.h"

namespace cohort::collective {

// How an operation on the SharedControlBlock begins: with the first round on every rank's stage, with every rank's buffer mapped in place,
// or with neither.
enum class StartMode { staged, in_place, unstaged };

inline constexpr int kFlows = 8;  // independent message streams of one operation, by tag

class Peers {
 public:
  Peers(std::shared_ptr<net::PeerLinks> links, std::shared_ptr<Arena> arena, std::vector<Rank> members, int me, std::uint32_t channel);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int rank() const { return me_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<Rank>& members() const { return members_; }  // ranks in the PeerLinks
  net::PeerLinks& links() const { return *links_; }
  const std::shared_ptr<net::PeerLinks>& shared_links() const { return links_; }
  const std::shared_ptr<Arena>& arena() const { return arena_; }
  StagingCopy& staging_copy() { return staging_copy_; }
  SharedControlBlock* control_block() const { return published_control_block_.load(std::memory_order_acquire); }
  std::uint32_t channel() const { return channel_; }
  const Hosts& hosts() const { return hosts_; }
  // The members on this host, who have a SharedControlBlock: all of us, or some, or nullptr when there is no other.
  Peers* inside() { return control_block() != nullptr ? this : published_local_peers_.load(std::memory_order_acquire); }

  // Makes the SharedControlBlock when all members share memory: member 0 creates it, the others open it; else inside(), which then has one.
  // Called once, by every member.
  void share_control_block(SpinPolicy spin_policy, Seconds warn_after, Deadline deadline);

  // --- one operation at a time
  void begin(const Fingerprint& print, std::optional<Deadline> deadline, Seconds timeout);
  const Fingerprint& print() const { return print_; }
  Deadline deadline();  // the clock is read at the first wait that takes long enough to care

  // All ranks compare their fingerprints before data moves; throws Kind::usage on every rank alike. Also a barrier.
  // On the SharedControlBlock: `where` says that this rank's buffer can be used in place; without it, fill(stage) writes the first round to
  // our stage.
  template <class Fill>
  StartMode open(const std::optional<RegionAddress>& where, Fill fill);
  void agree();                    // over links
  void sync();                     // SharedControlBlock: one more step of the same operation, filled before the call
  void await();                    // SharedControlBlock: until every rank posted the current step
  void await_work(int total);      // SharedControlBlock: until all shared work of the current step is done
  std::byte* buffer_of(int rank);  // that rank's buffer, after an in_place opening
  void compare() const;            // the digests of the current step

  // --- links, tagged with the operation
  net::Pending send(int to, ConstBytes bytes, int flow = 0);
  net::Pending recv(int from, Bytes bytes, int flow = 0);
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

  // The same in memory that the ranks of this host have mapped.
  const Region& shared_scratch(std::size_t bytes) {
    if (shared_scratch_.bytes() < bytes) shared_scratch_ = arena_->allocate(bytes);
    return shared_scratch_;
  }

  // --- failure
  // body() while operations in flight still live around it: when it fails, peers get the cause before those are given up.
  template <class Body>
  void or_abort(const Body& body) {
    try {
      body();
    } catch (const Failure& failure) {
      links().abort(failure.error());
      throw;
    }
  }
  void fail(const Error& error) noexcept;  // the first one stays, but that a rank left politely is less than any failure
  void check() const;                      // throws it
  // As check(), but a rank that left politely had done its part of what is in flight, or the rank that misses it reports that.
  void check_others() const;
  bool failed() const { return failed_.load(std::memory_order_relaxed); }

 private:
  StartMode resolve_start_mode();
  void await_loss();  // a peer's memory is gone: throws when it turns out that the peer is
  void make_control_block(SpinPolicy spin_policy, Seconds warn_after, Deadline deadline);
  Tag tag(int flow) const;

  const std::shared_ptr<net::PeerLinks> links_;
  const std::shared_ptr<Arena> arena_;
  const std::vector<Rank> members_;
  const int me_;
  const std::uint32_t channel_;
  const Hosts hosts_;
  std::unique_ptr<SharedControlBlock> control_block_;  // constant after share_control_block()
  std::atomic<SharedControlBlock*> published_control_block_{
      nullptr};                                         // the same, once it is complete: fail() may come from another thread at any time
  std::unique_ptr<Peers> local_peers_;                  // constant after share_control_block(): the members on this host, when not all are
  std::atomic<Peers*> published_local_peers_{nullptr};  // the same
  int watch_ = -1;

  StagingCopy staging_copy_;  // owned by the thread that runs the collective
  Fingerprint print_;         // owned by the thread that runs the collective
  std::optional<Deadline> deadline_;
  Seconds timeout_{};
  std::shared_ptr<void> scratch_;
  std::size_t scratch_bytes_ = 0;
  Region shared_scratch_;

  mutable std::mutex mutex_;
  std::optional<Error> error_;  // guarded by mutex_
  std::atomic<bool> failed_{false};
};

template <class Fill>
StartMode Peers::open(const std::optional<RegionAddress>& where, Fill fill) {
  SharedControlBlock::Descriptor& descriptor = control_block_->next_descriptor();
  descriptor.print = print_;
  if (where) {
    descriptor.where = *where;
  } else {
    fill(control_block_->next_stage());
  }
  control_block_->post(print_.digest, where ? SharedControlBlock::kInRegion : SharedControlBlock::kStaged);
  await();
  return resolve_start_mode();
}

}  // namespace cohort::collective
