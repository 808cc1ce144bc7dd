// Files in a folder of checkpoints: only regular ones, behind no symbolic link (base/regular_file.h).
// Owner: values. Threads: any. Failure: Kind::corrupt for what is no regular file or folder, Kind::system naming the path.
#pragma once
#include <string>

#include "cohort/base/regular_file.h"

namespace cohort::checkpoint {

using cohort::open_regular;
using cohort::read_regular_file;

// A folder named like a step (step-00001200) must be one itself. Under any other name (`best`, say) a link is its owner's. own: parts of
// the path above it that are no links either.
Folder open_step_folder(const std::string& path, int own = 0);

}  // namespace cohort::checkpoint
