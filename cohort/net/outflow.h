// The sending half of one tcp peer: messages leave in order, straight from the caller's memory, as far as the socket takes them.
// Small ones are copied by the kernel. Large ones to a peer of this host are lent (lender.h): the message is done, and its last block
// stamped good, when the peer has said that it read them. Large ones to other hosts leave without a copy where that works (zerocopy.h).
// Owner: TcpMesh, one per peer. Threads: any (one mutex, held for a few system calls at a time). Failure: Push says when the
// connection is broken, every time; after stop() nothing of a caller's memory is touched any more.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cohort/net/frame.h"
#include "cohort/net/hub.h"
#include "cohort/net/lender.h"
#include "cohort/net/socket.h"
#include "cohort/net/zerocopy.h"

namespace cohort::net {

// The rest of a data frame of which `sent` bytes have left, when its body may not be touched any more: the block under way is filled
// with zeros and stamped void. check: of the block under way, for a stamp that is half gone and cannot change its mind.
std::vector<std::byte> void_rest(const HeaderBytes& header, std::uint64_t length, std::uint64_t sent, std::uint32_t check);

class Outflow {
 public:
  // far: the bytes leave this host, so blocks get checksums; large ones are not lent but sent without a copy.
  // tls: what leaves is encrypted, which is a copy and a checksum in one, so neither is lent nor checked besides.
  // paced: the kernel spreads packets over time (bbr).
  Outflow(Connection to_peer, Rank to, bool far, bool paced = false);
  struct Push {
    bool moved = false;  // bytes left, or memory came free
    bool broken = false;
    int problem = 0;  // errno when broken
  };
  // Sends what the socket takes at once; null when that was all of it, else a Sending that push() carries on with.
  std::shared_ptr<Sending> begin(ConstBytes bytes, Tag tag, Push& result);
  Push push();
  bool waiting() const { return waiting_.load(std::memory_order_acquire); }  // push() has something to do or to tell
  bool flying() const { return flying_.load(std::memory_order_acquire); }    // for the kernel to let go of memory
  bool lending() const { return lending_.load(std::memory_order_acquire); }  // memory the peer has not read yet
  void owe_got();                                                            // the peer's lent message has been read: push() tells it
  bool lent_was_got();  // the peer has read ours; false: we have lent nothing, so it cannot
  // The queue is dropped; one last frame leaves. A message that is half gone is filled up with zeros and stamped void before it.
  void stop(std::uint16_t last_type, ConstBytes last_body);
  void drop();  // nothing leaves any more: the peer is gone

 private:
  struct Item {
    std::shared_ptr<Sending> sending;  // shared with the waiter; null while begin() writes, and for the last frame
    std::vector<std::byte> raw;        // the last frame, as it lies in the stream; else ..
    HeaderBytes header{};              // .. made when the first byte leaves ..
    ConstBytes body;                   // .. and borrowed
    Tag tag;
    bool lent = false, got = false;     // got: the peer has read all of it
    std::uint64_t sent = 0, total = 0;  // bytes of the frame as it lies in the stream
    std::uint64_t checked_block = ~0ULL;
    std::uint32_t check = 0;  // of checked_block
    bool before_last_stamp() const { return sent + kStampBytes == total; }
  };
  struct Parts {  // of one sendmsg
    iovec at[3];
    std::size_t count = 0;
    int flags = 0;
    bool lend = false;
    StampBytes stamp;
    void add(ConstBytes bytes) { at[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()}; }
    ConstBytes only() const { return {static_cast<const std::byte*>(at[0].iov_base), at[0].iov_len}; }
  };
  bool write(Item& item, Push& result);  // true: all of it left
  void gather(Item& item, Parts& parts);
  IoResult send_parts(Item& item, const Parts& parts);
  bool say_got(Push& result);  // true: nothing of it is left to say
  void write_queue(Push& result);
  void forget();  // all that was to leave
  void note_state();

  const Connection to_peer_;
  const Rank to_;
  const bool checked_;
  std::mutex mutex_;
  Lender lender_;  // guarded by mutex_, as all below
  ZeroCopy zerocopy_;
  std::deque<Item> queue_;
  std::uint64_t sequence_ = 0;
  bool owed_ = false;             // a "got" that waits for the end of a block or frame
  std::vector<std::byte> going_;  // one that began to leave
  bool stopped_ = false;
  std::optional<int> broken_;  // the connection is, with this errno
  std::atomic<bool> waiting_{false}, flying_{false}, lending_{false};
};

}  // namespace cohort::net
