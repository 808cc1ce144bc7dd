// The DecisionLog keeps the coordinator's decisions on disk (a write-ahead log): append() returns when they are durable, and only then may
// they be sent to any worker. One file, one owner: a second coordinator on it is refused by a lock that ends with its process.
//
//   file   "cohortlg" | version, 4 bytes | frames        all integers little-endian
//   frame  length 4 | number 4 | crc32c of these 8, 4 | crc32c of the body, 4 | body
//   body   (length 4 | entry) ...                        one frame holds what one append() was given: all of it counts, or none
//
// A frame that was being written at a crash is the last one and is cut off on opening: its decisions were never sent. A bad frame with a
// good one behind it is damage to decisions that were sent, and is refused. Owner: the coordinator. Threads: one. Failure:
// Kind::usage when another process holds the file, Kind::corrupt for damage naming file and offset, Kind::system from the disk; after a
// failed append() the log takes no more, since it is unknown what is on disk.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"
#include "cohort/elastic/coordinator_state.h"

namespace cohort::elastic {

struct LogContent {
  std::vector<Entry> entries;
  std::uint32_t frames = 0;
  std::size_t whole = 0;  // bytes that are valid; what follows was never acted on
};

// The bytes of a log file, read as far as they are good. where: the file, for failures.
LogContent decode_log(ConstBytes bytes, const std::string& where);
std::vector<std::byte> log_header();
std::vector<std::byte> encode_frame(std::span<const Entry> entries, std::uint32_t number);

class DecisionLog {
 public:
  // Opens or creates (mode 0600) the file and reads it.
  explicit DecisionLog(std::string path);
  // The same for a file that is open already and may have no name; the descriptor stays the caller's, the lock is ours.
  explicit DecisionLog(int file);

  const std::vector<Entry>& found() const { return found_; }  // what it held when it was opened
  std::size_t cut_off() const { return cut_off_; }            // bytes of an unfinished write that were dropped
  void append(std::span<const Entry> entries);

 private:
  bool open();  // whether it was empty
  void write_durably(ConstBytes bytes);

  const std::string path_;
  Fd fd_;
  std::vector<Entry> found_;
  std::size_t cut_off_ = 0;
  std::size_t end_ = 0;
  std::uint32_t frames_ = 0;
  std::optional<Error> failed_;
};

}  // namespace cohort::elastic
