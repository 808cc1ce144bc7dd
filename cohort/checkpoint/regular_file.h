// Files and folders that only this program puts into a folder of checkpoints. Whoever else may write there can leave something in their
// place: a symbolic link that leads elsewhere, a FIFO that makes its reader wait for ever. Both are refused at once, by name.
// Owner: values. Threads: any. Failure: Kind::corrupt for what is no regular file or folder, Kind::system naming the path.
#pragma once
#include <cstddef>
#include <string>

#include "cohort/base/fd.h"

namespace cohort::checkpoint {

// ::open, of a regular file only. Nothing is truncated, read or waited for before that is known, so `flags` has no O_TRUNC.
Fd open_regular(const std::string& path, int flags, unsigned mode = 0);

// The whole of it; Kind::usage above `most` bytes.
std::string read_regular_file(const std::string& path, std::size_t most);

// A folder named like a step (step-00001200) must be one itself. Under any other name (`best`, say) a link is its owner's.
void refuse_linked_step(const std::string& folder);

}  // namespace cohort::checkpoint
