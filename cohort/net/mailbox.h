// The matching engine every transport shares: posted receives meet arriving messages, keyed by (peer, tag).
// Owner: one Mailbox per Mesh. Threads: any; messages of one peer land one at a time on each strand of its link (the transport's reader of
// it). Failure: a length that differs fails that receive alone (Kind::corrupt); fail() is sticky per peer, the first error wins. Matching
// is in order per (peer, tag). Memory for messages nobody asked for is bounded: see arrive().
//
//   transport side:  auto landing = mailbox.arrive(from, tag, length);      // nullopt: stop reading this peer for now
//                    while (!landing->complete()) {
//                      Bytes room = landing->room(64_KiB);                   // the posted buffer itself, or owned memory, or a sink
//                      landing->filled(read_some_into(room));                // room() .. filled(): short, never sleeps
//                    }
//                    mailbox.landed(std::move(*landing));                    // completes the receive, or queues the message
//
// Nothing here sleeps or wakes: hub.h does both.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/ids.h"
#include "cohort/net/link.h"

namespace cohort::net {

std::string tag_text(Tag tag);  // "tag 3:17" (channel:number), as every message spells it

// Memory of a caller, in use by a transport that may lose the right to touch it at any moment (timeout, failure, abandoned Pending).
// It is touched only between pin() and unpin(), which are short, so that cancel() can promise: nobody is inside any more.
class Borrowed {
 public:
  bool done() const { return (state_.load() & kDone) != 0; }
  bool pin();  // false: cancelled, the memory is its owner's again
  void unpin() { state_.fetch_and(~kPinned, std::memory_order_release); }
  void cancel();                               // returns when nobody is inside, at most one piece of copying later
  void set_done() { state_.fetch_or(kDone); }  // in one order with the looks at who sleeps: hub.h

 private:
  static constexpr std::uint32_t kPinned = 1, kCancelled = 2, kDone = 4;
  std::atomic<std::uint32_t> state_{0};
};

// A receive under way. Shared by the waiter (who lends the buffer) and the queue it stands in.
class Receive : public Borrowed {
 public:
  Receive(Rank from, Tag tag, Bytes into) : from_(from), tag_(tag), into_(into) {}
  Rank from() const { return from_; }
  Tag tag() const { return tag_; }
  std::size_t size() const { return into_.size(); }
  const std::optional<Error>& error() const { return error_; }  // once done()

 private:
  friend class Mailbox;
  friend class Landing;
  void finish(std::optional<Error> error);  // the first call counts

  const Rank from_;
  const Tag tag_;
  const Bytes into_;
  std::optional<Error> error_;  // written before set_done()
};

// A message nobody had asked for when its header came.
struct Parcel {
  Rank from;
  Tag tag;
  std::uint64_t length = 0;
  std::vector<std::byte> bytes;      // owned by the lander until `arrived`
  bool arrived = false;              // all bytes are here
  bool dropped = false;              // discarded while arriving
  std::uint64_t order = 0;           // of arrival, over all peers
  std::shared_ptr<Receive> receive;  // posted while the bytes were still coming
};

// One message on its way from the transport into memory. Movable; owned by the reader of that peer.
class Landing {
 public:
  bool complete() const { return done_ == length_; }
  std::uint64_t left() const { return length_ - done_; }
  // Where the next bytes go: at most `most`, at least one when any are left. Valid until filled(), which must follow soon.
  Bytes room(std::size_t most);
  void filled(std::size_t bytes);  // 0 is fine: nothing came
  void copy(ConstBytes bytes);     // room + memcpy + filled, for transports that hold the bytes already

 private:
  friend class Mailbox;
  Rank from_;
  Tag tag_;
  std::uint64_t length_ = 0, done_ = 0;
  std::shared_ptr<Receive> receive_;  // bytes go straight into its buffer ..
  std::shared_ptr<Parcel> parcel_;    // .. or into owned memory; neither: a sink
  bool pinned_ = false;
};

// How much a transport wants to read on. soon: it has held a message back for a while, and who knows what comes behind. now: something
// behind it is waited for.
enum class Haste : unsigned char { none, soon, now };

// One of the sockets that carry a peer's messages side by side. A tag always takes the same one, so its messages stay in order; all but
// those of the collectives take the first, so that next() gives them in the order they were sent.
struct Strand {
  std::uint32_t index = 0, of = 1;
  static std::uint32_t of_tag(Tag tag, std::uint32_t of) { return tag.number < kCollectiveTags ? 0 : tag.number % of; }
  bool carries(Tag tag) const { return of_tag(tag, of) == index; }
};

class Mailbox {
 public:
  static constexpr std::uint64_t kLargeBytes = 128_KiB;
  static constexpr std::uint64_t kUnexpectedBytes = 64_MiB;  // per peer, before its reader is told to pause
  Mailbox(Rank me, int ranks, std::uint64_t unexpected_bytes = kUnexpectedBytes);

  // ---- the receiving side
  std::shared_ptr<Receive> post(Rank from, Tag tag, Bytes into);  // may be done() at once; never throws a link's failure
  // Its buffer is free when this returns. A message already half way into it is dropped; any other waits for the next receive.
  void cancel(const std::shared_ptr<Receive>& receive);
  std::optional<Message> take(TagRange range);  // the oldest complete message of the range
  void discard(TagRange range);
  // While a thread waits in next(), readers of all peers must go on reading.
  void wanting_any(int change);

  // ---- the transport side
  // nullopt: no receive waits on this strand of the peer, and its unclaimed messages fill their share (unless Haste::now), or this one is
  // large and a collective's, whose receive is sure to come (unless Haste::soon): it stays in the transport instead of being copied twice.
  // Ask again with the same header after thaw() named the peer (post, take and discard make room); meanwhile do not read from it.
  std::optional<Landing> arrive(Rank from, Tag tag, std::uint64_t length, Haste haste = Haste::none, Strand strand = {});
  void landed(Landing&& landing);
  bool deliver(Rank from, Tag tag, ConstBytes bytes);  // all at once; false: paused, as nullopt above
  bool thaw(Rank peer);                                // true once after arrive() had paused this peer and there may be room again

  // ---- failure
  // True for the first. Pending receives fail with it, later ones too. polite (the peer said goodbye): messages that arrived before
  // stay receivable, only receives that nothing can serve any more fail.
  bool fail(Rank peer, const Error& error, bool polite = false);
  bool failed(Rank peer) const { return boxes_[index(peer)].failed.load(); }
  std::optional<Error> failure(Rank peer) const;
  std::optional<Error> any_failure() const;  // of the lowest rank that failed

  Rank me() const { return me_; }
  int ranks() const { return static_cast<int>(boxes_.size()); }

 private:
  struct Box {                                      // everything about one peer
    std::deque<std::shared_ptr<Receive>> posted;    // in order of posting, none matched yet
    std::deque<std::shared_ptr<Parcel>> parcels;    // in order of arrival
    std::vector<std::shared_ptr<Receive>> landing;  // being filled now, at most one a strand
    std::uint64_t unexpected = 0;                   // bytes in parcels
    bool paused = false, thawed = false;
    bool polite = false;
    std::optional<Error> error;
    std::atomic<bool> failed{false};  // error is set
  };
  std::size_t index(Rank peer) const;
  bool must_pause(const Box& box, const Landing& landing, Haste haste, Strand strand) const;
  std::shared_ptr<Parcel> take_parcel(Box& box, std::size_t at);  // it leaves the queue
  static std::shared_ptr<Receive> match_posted(Box& box, Tag tag);
  void make_room(Box& box) { box.thawed = box.thawed || box.paused; }
  static Error wrong_length(const Receive& receive, std::uint64_t came);

  const Rank me_;
  const std::uint64_t cap_;
  mutable std::mutex mutex_;
  std::vector<Box> boxes_;      // guarded by mutex_, `failed` apart
  std::uint64_t arrivals_ = 0;  // guarded by mutex_
  int wanting_any_ = 0;         // guarded by mutex_
};

}  // namespace cohort::net
