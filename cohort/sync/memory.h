// Memory of this process for the flat slices of a bucket: pages, or a file mapped into memory where they are more than there is.
// Owner: the Region. Threads: any. Failure: Kind::usage for a folder that cannot be written to; Kind::system when there is no space.
#pragma once
#include <string>

#include "cohort/collective/communicator.h"

namespace cohort::sync {

// Zeroed, on a 64-byte boundary. which: slices that one pass reads together have different numbers, or they would fight for cache sets.
collective::Region pages_for(std::size_t bytes, std::size_t which);

// The same there; of a GPU `which` makes no difference.
collective::Region memory_for(std::size_t bytes, std::size_t which, Device device);

// The same in a file of that folder which has no name and is freed with the Region. All of its space is taken at once, so that a full disk
// is an error here and not a signal later.
collective::Region file_for(std::size_t bytes, const std::string& folder);
// The pages of a file_for() leave this process until they are touched again; the kernel writes what changed.
void page_out(const collective::Region& region);

}  // namespace cohort::sync
