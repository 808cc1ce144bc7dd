// Whole files in and out, and folders that vanish with their owner.
// Threads: any, distinct paths. Failure: Kind::system (or Kind::usage for a file that is too large), always naming the path.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

#include "cohort/base/bytes.h"

namespace cohort {

// Refuses files above `most`, before reading them, and grown ones while reading.
std::string read_file(const std::string& path, std::size_t most = 64_MiB);

// Readers see the old file or the whole new one, also after a power cut: temporary beside it, fsync, rename, fsync of the folder.
// A failure leaves the old file and no temporary. mode is subject to the umask.
void write_file_atomically(const std::string& path, std::string_view content, unsigned mode = 0666);

// "prefix-<pid>-<random>", different at every call on every process of a host.
std::string unique_name(std::string_view prefix);

// A folder and all that is in it, or a file; links are not followed. Nothing there: no error. Not std::filesystem::remove_all: libtorch
// exports a copy of that, built by another compiler, which a program may meet instead of its own.
std::error_code remove_tree(const std::string& path) noexcept;

// A private folder (mode 0700) under $TMPDIR or /tmp, removed with everything in it by the process that made it
// (a forked child leaves it alone).
class TempDir {
 public:
  explicit TempDir(std::string_view prefix = "cohort");
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
  int owner_pid_ = 0;
};

}  // namespace cohort
