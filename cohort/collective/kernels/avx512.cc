// 64-byte vectors: one register is one cache line. Empty where the compiler was not given the flags (kernels.cmake).
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define COHORT_SET avx512
#define COHORT_WIDTH 64
#include "cohort/collective/kernels/kernels.inc"
#endif
