// A file being written: in large pieces, hashed on the way, and durable when finish() returns.
// Small pieces gather in a buffer; a large one goes to the kernel from where it lies. Each stretch is hashed while it is still in the
// cache, and its way to the disk starts at once, so that the fsync at the end has little left to do.
// Owner: the writer. Threads: one. Failure: Kind::system with path and offset; an Output that dies without finish() unlinks its file.
#pragma once
#include <optional>
#include <string>

#include "cohort/base/bytes.h"
#include "cohort/base/fd.h"
#include "cohort/base/folder.h"
#include "cohort/checkpoint/sha256.h"

namespace cohort::checkpoint {

struct Written {
  std::uint64_t bytes = 0;
  std::string sha256;  // empty when not asked for
};

struct OutputOptions {
  bool hash = true;
  bool sync = true;      // fsync in finish()
  unsigned mode = 0666;  // subject to the umask
};

class Output {
 public:
  explicit Output(FileAt file, OutputOptions options = {});  // one that exists already is refused
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(ConstBytes bytes);  // borrowed during the call
  Written finish();

 private:
  void put(ConstBytes bytes);  // to the kernel, all of it
  void start_writeback();

  const FileAt file_;
  const OutputOptions options_;
  Fd fd_;
  std::optional<Sha256> hash_;
  std::string buffer_;
  std::uint64_t written_ = 0;  // with the kernel; buffer_ comes after
  std::uint64_t started_ = 0;  // on its way to the disk
  bool finished_ = false;
};

}  // namespace cohort::checkpoint
