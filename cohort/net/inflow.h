// The receiving half of one socket to a tcp peer: turns the byte stream into landings of the mailbox. Small frames pass through a staging
// buffer, so that one system call brings whole messages; the rest of a large body goes straight into the receiver's memory. Owner: TcpMesh,
// one per socket. Threads: the driver only. Failure: Pull says how the stream ended; nothing is thrown.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/net/frame.h"
#include "cohort/net/mailbox.h"
#include "cohort/net/socket.h"

namespace cohort::net {

class Inflow {
 public:
  Inflow(Mailbox& mailbox, Rank from, Strand strand = {}) : mailbox_(mailbox), from_(from), strand_(strand) {}
  enum class End : unsigned char { none, goodbye, aborted, closed, corrupt };
  struct Pull {
    bool moved = false;   // bytes came
    bool paused = false;  // the mailbox takes no more from this peer for now
    bool owed = false;    // a lent message was read to its end: tell the peer
    bool got = false;     // the peer has read what we lent
    End end = End::none;
    std::string text;  // aborted, corrupt, closed: why
  };
  Pull pull(Connection from, Haste haste = Haste::none);  // what is there, up to about a block
  std::size_t sure() const;                               // so many bytes come for certain, whatever we do meanwhile
  Pull feed(ConstBytes bytes);                            // the same without a socket; what follows a pause or the end is dropped

 private:
  enum class Stage : unsigned char { header, body, stamp };
  bool digest_staged(Pull& out);                    // true when all of it was used
  std::size_t digest(ConstBytes bytes, Pull& out);  // how many were used: all, unless paused or ended
  std::size_t digest_header(ConstBytes bytes, Pull& out);
  std::size_t digest_body(ConstBytes bytes, Pull& out);
  std::size_t digest_stamp(ConstBytes bytes, Pull& out);
  void start_frame(const FrameHeader& header, Pull& out);
  void start_message(Pull& out);
  void start_body(Pull& out);
  void start_block();
  void end_frame(Pull& out);
  static void peer_got(Pull& out);
  void body_came(std::size_t bytes, Pull& out);
  bool read(Connection from, Pull& out);  // true when the socket may hold more

  Haste haste_ = Haste::none;
  Mailbox& mailbox_;
  const Rank from_;
  const Strand strand_;
  Stage stage_ = Stage::header;
  HeaderReader headers_{Stream::data};
  FrameHeader header_;
  bool blocked_ = false;            // header_ announces a message that the mailbox did not take yet
  std::optional<Landing> landing_;  // of a data frame
  std::vector<std::byte> text_;     // of an abort frame
  std::uint64_t body_left_ = 0;     // of the frame
  std::size_t block_left_ = 0;      // of the block
  std::uint32_t check_ = 0;         // of the block so far
  StampBytes stamp_{};
  std::size_t stamp_have_ = 0;
  std::size_t staged_begin_ = 0, staged_end_ = 0;
  std::array<std::byte, 16_KiB> staging_;
};

}  // namespace cohort::net
