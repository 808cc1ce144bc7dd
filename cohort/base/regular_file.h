// Files that only this program puts into a folder (folder.h has the folders). Whoever else may write there can leave something in their
// place: a symbolic link that leads elsewhere, a FIFO that makes its reader wait for ever. Both are refused at once, by name. What leads to
// the folder itself is its user's, and followed.
// Owner: values. Threads: any. Failure: Kind::corrupt for what is no regular file, Kind::system naming the path.
#pragma once
#include <cstddef>
#include <string>

#include "cohort/base/fd.h"
#include "cohort/base/folder.h"

namespace cohort {

// ::open, of a regular file only. Nothing is truncated, read or waited for before that is known, so `flags` has no O_TRUNC.
Fd open_regular(const FileAt& file, int flags, unsigned mode = 0);

// The whole of it; Kind::usage above `most` bytes.
std::string read_regular_file(const FileAt& file, std::size_t most);

[[noreturn]] void refuse_link(const std::string& path);
bool is_link(const FileAt& file);

}  // namespace cohort
