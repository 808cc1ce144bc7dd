// Files and folders that only this program puts into a folder. Whoever else may write there can leave something in their place: a symbolic
// link that leads elsewhere, a FIFO that makes its reader wait for ever. Both are refused at once, by name. What leads to the folder itself
// is its user's, and followed.
// Owner: values. Threads: any. Failure: Kind::corrupt for what is no regular file or folder, Kind::system naming the path.
#pragma once
#include <cstddef>
#include <string>

#include "cohort/base/fd.h"

namespace cohort {

// ::open, of a regular file only. Nothing is truncated, read or waited for before that is known, so `flags` has no O_TRUNC.
Fd open_regular(const std::string& path, int flags, unsigned mode = 0);

// The whole of it; Kind::usage above `most` bytes.
std::string read_regular_file(const std::string& path, std::size_t most);

// <folder>/<name>, made where it is missing: a handle through which files are opened in this folder and no other, whatever is put in its
// place meanwhile.
Fd open_folder_in(const std::string& folder, const std::string& name, unsigned mode = 0777);

// Refuses what stands in place of a folder; one that is missing is none of that.
void refuse_in_place_of_folder(const std::string& path);

[[noreturn]] void refuse_link(const std::string& path);
bool is_link(const std::string& path);

}  // namespace cohort
