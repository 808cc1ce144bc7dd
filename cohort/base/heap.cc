#include "cohort/base/heap.h"

#include <malloc.h>

#include <cstdlib>
#include <initializer_list>

namespace cohort {

void keep_freed_memory() {
  for (const char* own : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES"})
    if (std::getenv(own) != nullptr) return;
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most it takes, and where it moves to by itself
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  mallopt(M_TOP_PAD, 16 << 20);
}

}  // namespace cohort
