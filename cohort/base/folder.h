// A folder that is held open. What is opened, made, renamed and removed by a name in it is in this folder and no other, whatever is put in
// its place meanwhile: no check comes before the use. No link is followed that stands for a name in it.
//   const Folder checkpoints(run + "/checkpoints", 1);
//   write_file_atomically({checkpoints, "note"}, text);
// Owner: a value; copies share the handle. Threads: any. Failure: Kind::corrupt for a link, or what is no folder, in place of one;
// Kind::system naming the path.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cohort/base/fd.h"

namespace cohort {

class Folder {
 public:
  // own: so many of the last parts of the path are this program's own, and none of them may be a link. What leads to them is its user's,
  // and followed.
  Folder(std::string path, int own = 0);  // NOLINT(google-explicit-constructor): a path will do where a folder is asked for
  static std::optional<Folder> if_there(const std::string& path, int own = 0);  // none: nothing is

  const std::string& path() const { return path_; }
  int fd() const { return fd_->get(); }
  std::string path_of(std::string_view name) const { return path_ + "/" + std::string(name); }

  Folder inner(const std::string& name) const;                       // a folder in it
  Folder make(const std::string& name, unsigned mode = 0777) const;  // the same, made where it is missing
  bool has(const std::string& name) const;
  std::vector<std::string> names() const;
  void rename(const std::string& from, const std::string& to) const;
  void remove_file(const std::string& name) const;
  void sync() const;  // its names are durable afterwards; file systems that do not know this are taken as they are

 private:
  Folder() = default;

  std::string path_;  // for messages
  std::shared_ptr<const Fd> fd_;
};

// Where a file is, or shall be: a name in a folder, or a path.
struct FileAt {
  FileAt(std::string at) : name(at), path(std::move(at)) {}  // NOLINT(google-explicit-constructor): the usual case
  FileAt(const Folder& in, std::string file) : folder(in), name(std::move(file)), path(in.path_of(name)) {}
  int fd() const;  // for the system's calls that take a folder and a name

  std::optional<Folder> folder;
  std::string name, path;
};

void write_file_atomically(const FileAt& file, std::string_view content, unsigned mode = 0666);  // as of file.h
std::error_code remove_tree(const FileAt& file) noexcept;                                        // likewise

}  // namespace cohort
