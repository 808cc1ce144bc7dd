// The message matching of every transport: posted receives meet arriving messages, keyed by (peer, tag).
// Owner: one Mailbox per PeerLinks. Threads: any; messages of one peer arrive one at a time on each stream of its link (the transport's
// reader of it). Failure: a length that differs fails that receive alone (Kind::corrupt); fail() is sticky per peer, the first error wins.
// Matching is in order per (peer, tag). Memory for unexpected messages is bounded: see arrive().
//
//   transport side:  auto slot = mailbox.arrive(from, tag, length);          // nullopt: stop reading from this peer for now
//                    while (!slot->complete()) {
//                      Bytes space = slot->space(64_KiB);                    // the posted buffer itself, or owned memory, or a sink
//                      slot->filled(read_some_into(space));                  // space() .. filled(): short, never sleeps
//                    }
//                    mailbox.finish(std::move(*slot));                       // completes the receive, or queues the message
//
// Nothing here sleeps or wakes: transport_base.h does both.
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
#include "cohort/net/transport/link.h"

namespace cohort::net {

std::string tag_text(Tag tag);  // "tag 3:17" (channel:number), as in every error message

// A caller's memory in use by a transport, which may lose the right to touch it at any moment (timeout, failure, abandoned Pending).
// It is touched only between pin() and unpin(), which are short, so that nobody touches it any more once cancel() has returned.
class BorrowedBuffer {
 public:
  bool done() const { return (state_.load() & kDone) != 0; }
  bool pin();  // false: cancelled, the memory is its owner's again
  void unpin() { state_.fetch_and(~kPinned, std::memory_order_release); }
  void cancel();                               // returns when nobody has it pinned, at most one piece of copying later
  void set_done() { state_.fetch_or(kDone); }  // sequentially consistent with the checks for sleepers: transport_base.h

 protected:
  // While it exists pin() waits, and nobody has the memory pinned.
  class Hold {
   public:
    explicit Hold(BorrowedBuffer& buffer);
    ~Hold() { buffer_.state_.fetch_and(~kHeld, std::memory_order_release); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    BorrowedBuffer& buffer_;
  };

 private:
  void await_unpinned() const;
  static constexpr std::uint32_t kPinned = 1, kCancelled = 2, kDone = 4, kHeld = 8;
  std::atomic<std::uint32_t> state_{0};
};

// A receive in progress. Shared by the waiter, whose buffer it is, and the queue it is in.
class Receive : public BorrowedBuffer {
 public:
  Receive(Rank from, Tag tag, Bytes into) : from_(from), tag_(tag), into_(into) {}
  Rank from() const { return from_; }
  Tag tag() const { return tag_; }
  std::size_t size() const { return into_.size(); }
  const std::optional<Error>& error() const { return error_; }  // once done()

 private:
  friend class Mailbox;
  friend class ReceiveSlot;
  void finish(std::optional<Error> error);  // the first call counts

  const Rank from_;
  const Tag tag_;
  const Bytes into_;
  std::optional<Error> error_;  // written before set_done()
};

// A message for which no receive was posted when its header came.
struct UnexpectedMessage {
  Rank from;
  Tag tag;
  std::uint64_t length = 0;
  std::vector<std::byte> bytes;      // written by its ReceiveSlot until `arrived`
  bool arrived = false;              // all bytes are here
  bool dropped = false;              // discarded while arriving
  std::uint64_t order = 0;           // of arrival, over all peers
  std::shared_ptr<Receive> receive;  // posted while the bytes were still coming
};

// Where one arriving message is written. Movable; owned by the reader of that peer.
class ReceiveSlot {
 public:
  bool complete() const { return done_ == length_; }
  std::uint64_t left() const { return length_ - done_; }
  // Where the next bytes go: at most `most`, at least one when any are left. Valid until filled(), which must follow soon.
  Bytes space(std::size_t most);
  void filled(std::size_t bytes);  // may be 0
  void copy(ConstBytes bytes);     // space + memcpy + filled, for transports that have the bytes already

 private:
  friend class Mailbox;
  Rank from_;
  Tag tag_;
  std::uint64_t length_ = 0, done_ = 0;
  std::shared_ptr<Receive> receive_;               // bytes go straight into its buffer ..
  std::shared_ptr<UnexpectedMessage> unexpected_;  // .. or into owned memory; neither: a sink
  bool pinned_ = false;
};

// How urgently a transport wants to read on. soon: it has held a message back for a while, and anything may be behind it. now: something
// behind it is waited for.
enum class ReadUrgency : unsigned char { none, soon, now };

// One of the parallel sockets of a link. A tag always uses the same one, so its messages stay in order; all tags but those of collectives
// use the first, so that next() returns their messages in the order they were sent.
struct StreamId {
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
  // The buffer is the caller's again when this returns. A message half way into it is dropped; any other waits for the next receive.
  void cancel(const std::shared_ptr<Receive>& receive);
  // The same, but its message is dropped, also when it comes later. Each receive of this kind needs a tag that no other uses.
  void drop(const std::shared_ptr<Receive>& receive);
  std::optional<Message> take(TagRange range);  // the oldest complete message of the range
  void discard(TagRange range);
  // While a thread waits in next(), the readers of all peers must go on reading.
  void add_any_waiters(int change);

  // ---- the transport side
  // nullopt: no receive waits on this stream of the peer, and its unexpected messages use up their limit (unless ReadUrgency::now), or this
  // one is large and a collective's, whose receive will be posted (unless ReadUrgency::soon): it stays in the transport instead of being
  // copied twice. Ask again with the same header after take_resume() of the peer (post, take and discard make room); until then do not read
  // from it.
  std::optional<ReceiveSlot> arrive(Rank from, Tag tag, std::uint64_t length, ReadUrgency urgency = ReadUrgency::none,
                                    StreamId stream_id = {});
  void finish(ReceiveSlot&& slot);
  bool deliver(Rank from, Tag tag, ConstBytes bytes);  // a whole message; false: paused, as nullopt above
  bool take_resume(Rank peer);                         // true once after arrive() had paused this peer and there may be room again

  // ---- failure
  // True for the first error. Pending and later receives fail with it. polite (the peer sent a goodbye): messages that arrived before
  // stay receivable, only receives without a message fail.
  bool fail(Rank peer, const Error& error, bool polite = false);
  bool failed(Rank peer) const { return queues_[index(peer)].failed.load(); }
  std::optional<Error> failure(Rank peer) const;
  std::optional<Error> any_failure() const;  // of the lowest rank that failed

  Rank me() const { return me_; }
  int ranks() const { return static_cast<int>(queues_.size()); }

 private:
  struct PeerQueues {                                                    // everything about one peer
    std::deque<std::shared_ptr<Receive>> posted;                         // in order of posting, none matched
    std::deque<std::shared_ptr<UnexpectedMessage>> unexpected_messages;  // in order of arrival
    std::vector<std::shared_ptr<Receive>> filling;                       // being filled now, at most one per stream
    std::vector<Tag> dropped;                                            // of messages that come and are not wanted
    std::uint64_t unexpected = 0;                                        // bytes of unexpected_messages
    bool paused = false, may_resume = false;
    bool polite = false;
    std::optional<Error> error;
    std::atomic<bool> failed{false};  // error is set
  };
  std::size_t index(Rank peer) const;
  bool must_pause(const PeerQueues& queues, const ReceiveSlot& slot, ReadUrgency urgency, StreamId stream_id) const;
  std::shared_ptr<UnexpectedMessage> take_unexpected(PeerQueues& queues, std::size_t at);  // it leaves the queue
  static std::shared_ptr<Receive> match_posted(PeerQueues& queues, Tag tag);
  void make_room(PeerQueues& queues) { queues.may_resume = queues.may_resume || queues.paused; }
  static Error wrong_length(const Receive& receive, std::uint64_t came);

  const Rank me_;
  const std::uint64_t unexpected_limit_;
  mutable std::mutex mutex_;
  std::vector<PeerQueues> queues_;  // guarded by mutex_, `failed` apart
  std::uint64_t arrivals_ = 0;      // guarded by mutex_
  int any_waiters_ = 0;             // guarded by mutex_
};

}  // namespace cohort::net
