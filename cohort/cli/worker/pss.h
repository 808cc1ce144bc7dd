// Bytes of this process in memory, a page that k processes map as a k-th of it (the kernel's Pss). Takes milliseconds for a large process.
// Threads: any. Failure: Kind::system.
#pragma once

namespace cohort::cli::worker {

double pss_bytes();

}  // namespace cohort::cli::worker
