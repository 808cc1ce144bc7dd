#include "cohort/base/heap.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>

namespace cohort {
namespace {

long faults() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_minflt;
}

// A block that is larger than what glibc keeps by itself, used and freed.
void use_and_free() {
  constexpr std::size_t kBytes = 24U << 20U;
  void* const block = std::malloc(kBytes);
  ASSERT_NE(block, nullptr);
  std::memset(block, 1, kBytes);
  asm volatile("" : : "r"(block) : "memory");
  std::free(block);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which bring heaps of their own
TEST(Heap, KeepsWhatIsFreed) {
  keep_freed_memory();
  use_and_free();
  const long before = faults();
  for (int i = 0; i < 10; ++i) use_and_free();
  EXPECT_LT(faults() - before, 1000);  // 6144 for each that is taken from the kernel anew
}
#endif

}  // namespace
}  // namespace cohort
