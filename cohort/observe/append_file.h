// A file that only grows, record by record, each whole or not there at all.
// Made for what a running job writes about itself: opening fails loudly (a bad path is known before the run), writing never does. A full
// disk, a quota or a lost mount is warned about once; records are counted as lost until there is space again, and training goes on.
// A symbolic link and a FIFO in its place are refused (Kind::corrupt): whoever may write there must not lead the run elsewhere, or stop it.
// Owner: one writer. Threads: one at a time.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/base/fd.h"
#include "cohort/base/folder.h"

namespace cohort::observe {

class AppendFile {
 public:
  // fresh: the file must not exist (Kind::system with EEXIST in its words otherwise).
  // resume: goes on after the last `end_of_record` of an existing file; what a killed writer left behind it is cut off.
  static AppendFile fresh(const FileAt& file);
  static AppendFile resume(std::string path, char end_of_record);

  bool append(std::string_view record) noexcept;  // false: lost
  const std::string& path() const { return path_; }
  std::uint64_t lost() const { return lost_; }

 private:
  AppendFile(const FileAt& file, int flags);
  void cut_after_last(char end_of_record);
  void lose(int error_number) noexcept;

  std::string path_;
  Fd fd_;
  bool torn_ = false;    // half a record is in the file and cannot be taken back: nothing may follow it
  bool warned_ = false;  // about the present error
  std::uint64_t lost_ = 0;
};

void make_folders(const std::string& path);  // like mkdir -p; Kind::system naming the path

}  // namespace cohort::observe
