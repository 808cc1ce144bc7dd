// The receiving half of one socket to a tcp peer: parses the byte stream into messages for the mailbox. Small frames pass through a staging
// buffer, so that one system call reads whole messages; the rest of a large body goes straight into the receiver's memory. Owner:
// TcpTransport, one per socket. Threads: the driver only. Failure: Pull says how the stream ended; nothing is thrown.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/net/frame/frame.h"
#include "cohort/net/socket/socket.h"
#include "cohort/net/transport/mailbox.h"

namespace cohort::net {

class ReceiveStream {
 public:
  ReceiveStream(Mailbox& mailbox, Rank from, StreamId stream_id = {}) : mailbox_(mailbox), from_(from), stream_id_(stream_id) {}
  enum class End : unsigned char { none, goodbye, aborted, closed, corrupt };
  struct Pull {
    bool moved = false;   // bytes came
    bool paused = false;  // the mailbox takes no more from this peer for now
    End end = End::none;
    std::string text;  // aborted, corrupt, closed: why
  };
  Pull pull(SocketView from, ReadUrgency urgency = ReadUrgency::none);  // reads what is there, up to about a block
  std::size_t sure() const;     // the number of bytes that are certain to come, whatever we send meanwhile
  Pull feed(ConstBytes bytes);  // the same without a socket; bytes after a pause or the end are dropped

 private:
  enum class Stage : unsigned char { header, body, trailer };
  bool parse_staged(Pull& out);                    // true when all of it was used
  std::size_t parse(ConstBytes bytes, Pull& out);  // how many were used: all, unless paused or ended
  std::size_t parse_header(ConstBytes bytes, Pull& out);
  std::size_t parse_body(ConstBytes bytes);
  std::size_t parse_trailer(ConstBytes bytes, Pull& out);
  void start_frame(const FrameHeader& header, Pull& out);
  void start_message(Pull& out);
  void start_body(Pull& out);
  void start_block();
  void end_frame(Pull& out);
  void body_came(std::size_t bytes);
  bool read(SocketView from, Pull& out);  // true when the socket may hold more

  ReadUrgency urgency_ = ReadUrgency::none;
  Mailbox& mailbox_;
  const Rank from_;
  const StreamId stream_id_;
  Stage stage_ = Stage::header;
  HeaderReader headers_{FrameClass::data};
  FrameHeader header_;
  bool blocked_ = false;             // header_ announces a message that the mailbox did not take yet
  std::optional<ReceiveSlot> slot_;  // of a data frame
  std::vector<std::byte> text_;      // of an abort frame
  std::uint64_t body_left_ = 0;      // of the frame
  std::size_t block_left_ = 0;       // of the block
  std::uint32_t check_ = 0;          // of the block so far
  TrailerBytes trailer_{};
  std::size_t trailer_have_ = 0;
  std::size_t staged_begin_ = 0, staged_end_ = 0;
  std::array<std::byte, 16_KiB> staging_;
};

}  // namespace cohort::net
