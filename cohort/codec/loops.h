// Loops over elements, compiled for every instruction set of base/isa.h. A pass is a struct of pointers and constants with one call that
// does element i:
//   struct Add { float* sum; const float* x; COHORT_INLINE void operator()(std::size_t i) const { sum[i] += x[i]; } };
//   for_each_index(Add{sum, x}, count);
// Only correctly rounded operations and integers, no branches: vectors of any width give the bits of the plain loop.
// For files that compile with -O3 (CMakeLists.txt). Threads: any, on memory that does not overlap; an output may be an input of the same i.
#pragma once
#include <cstddef>

#include "cohort/base/isa.h"

namespace cohort::codec {
namespace inner {

template <class Pass>
COHORT_INLINE void loop(const Pass& given, std::size_t count) {
  const Pass pass = given;  // copies live in registers; references could alias what the loop writes
#if !defined(__clang__)     // which compares the addresses at run time instead
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < count; ++i) pass(i);
}
template <class Pass>
void loop_plain(const Pass& pass, std::size_t count) {
  loop(pass, count);
}
template <class Pass>
COHORT_FOR_AVX2 void loop_avx2(const Pass& pass, std::size_t count) {
  loop(pass, count);
}

}  // namespace inner

template <class Pass>
void for_each_index(const Pass& pass, std::size_t count) {
  current_isa() == Isa::avx2 ? inner::loop_avx2(pass, count) : inner::loop_plain(pass, count);
}

}  // namespace cohort::codec
