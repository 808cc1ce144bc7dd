// glibc's heap, for training. Gradients, and what forward keeps for backward, come and go with every step. glibc gives memory at the top of
// its heap back to the kernel whenever 256 KiB to 64 MiB of it are free and takes it again in the next step, a page fault for each 4 KiB:
// 36 MB a step for ResNet-18. Owner: the process. Threads: any. Failure: none.
#pragma once

namespace cohort {

// From now on what is freed is kept. Where malloc's limits are set by its own environment variables, nothing changes.
void keep_freed_memory();

}  // namespace cohort
