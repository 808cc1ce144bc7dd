// The seam between kernels.cc and the files compiled for one instruction set each: plain pointers and counts, no std templates, because
// an inline function instantiated under wider flags could be the copy the linker keeps for the whole program.
// Threads: pure functions, any. Failure: none, kernels.cc has checked the arguments.
#pragma once
#include <cstddef>

#include "cohort/collective/types.h"

namespace cohort::collective {

struct KernelArgs {
  Dtype dtype;
  Op op;  // never average
  double pre, post;
  const char* const* sources;
  std::size_t n;  // 1 .. kMostSources
  char* const* targets;
  std::size_t m;
  std::size_t count;
};

// A stack of partial results, one per doubling, lives on the thread's stack: 8 * 2^20 sources need 21 of 4 KiB.
inline constexpr std::size_t kMostSources = std::size_t{8} << 20;

namespace plain {
void reduce(const KernelArgs& args);
void scale(Dtype dtype, char* data, std::size_t count, double factor);
}  // namespace plain
namespace avx2 {
void reduce(const KernelArgs& args);
void scale(Dtype dtype, char* data, std::size_t count, double factor);
}  // namespace avx2
namespace avx512 {
void reduce(const KernelArgs& args);
void scale(Dtype dtype, char* data, std::size_t count, double factor);
}  // namespace avx512

}  // namespace cohort::collective
