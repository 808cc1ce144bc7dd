// The sending half of one socket to a tcp peer: messages are sent in order, straight from the caller's memory, as far as the socket takes
// them. The kernel copies them, except large ones to other hosts, which are sent without a copy where that works (msg_zerocopy.h).
// Owner: TcpTransport, one per socket. Threads: any (one mutex, held for a few system calls at a time). Failure: every Push says when the
// connection is broken; after stop() nothing of a caller's memory is touched any more.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cohort/net/frame/frame.h"
#include "cohort/net/socket/socket.h"
#include "cohort/net/tcp/msg_zerocopy.h"
#include "cohort/net/transport/transport_base.h"

namespace cohort::net {

// The rest of a data frame of which `sent` bytes are out, when its body may not be touched any more: the current block is padded with zeros
// and marked void. check: of the current block, for a trailer that is already sent in part and must be completed as it began.
std::vector<std::byte> void_rest(const HeaderBytes& header, std::uint64_t length, std::uint64_t sent, std::uint32_t check);

class SendStream {
 public:
  // far: the bytes leave this host, so blocks get checksums, and large ones use MSG_ZEROCOPY.
  // With TLS the bytes are encrypted, which is a copy and a checksum in one: no zero-copy send and no checksum.
  SendStream(SocketView to_peer, Rank to, bool far);
  struct Push {
    bool moved = false;  // bytes were sent, or memory was released
    bool broken = false;
    int problem = 0;  // errno when broken
  };
  // Sends what the socket takes at once; null when that was all of it, else a Sending that push() continues.
  std::shared_ptr<Sending> begin(ConstBytes bytes, Tag tag, Push& result);
  Push push();
  bool waiting() const { return waiting_.load(std::memory_order_acquire); }      // push() has something to do or to report
  bool in_flight() const { return in_flight_.load(std::memory_order_acquire); }  // the kernel still reads a caller's memory
  // The queue is dropped; one last frame is sent. A message that is sent in part is padded with zeros and marked void before it.
  void stop(std::uint16_t last_type, ConstBytes last_body);
  void drop();  // nothing is sent any more: the peer is gone

 private:
  struct Item {
    std::shared_ptr<Sending> sending;  // shared with the waiter; null while begin() writes, and for the last frame
    std::vector<std::byte> raw;        // the last frame, encoded; else ..
    HeaderBytes header{};              // .. made when the first byte is sent ..
    ConstBytes body;                   // .. and borrowed
    Tag tag;
    std::uint64_t sent = 0, total = 0;  // bytes of the encoded frame
    std::uint64_t checked_block = ~0ULL;
    std::uint32_t check = 0;  // of checked_block
  };
  struct Parts {  // of one sendmsg
    iovec at[3];
    std::size_t count = 0;
    int flags = 0;
    TrailerBytes trailer;
    void add(ConstBytes bytes) { at[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()}; }
  };
  bool write(Item& item, Push& result);  // true: all of it is sent
  void gather(Item& item, Parts& parts);
  IoResult send_parts(Item& item, const Parts& parts);
  void write_queue(Push& result);
  void update_state();

  const SocketView to_peer_;
  const Rank to_;
  const bool checked_;
  std::mutex mutex_;
  MsgZeroCopy msg_zerocopy_;  // guarded by mutex_, as all below
  std::deque<Item> queue_;
  std::uint64_t sequence_ = 0;
  bool stopped_ = false;
  std::optional<int> broken_;  // errno of the broken connection
  std::atomic<bool> waiting_{false}, in_flight_{false};
};

}  // namespace cohort::net
