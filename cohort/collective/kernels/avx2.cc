// 32-byte vectors, F16C conversions. Empty where the compiler was not given the flags (kernels.cmake).
#if defined(__AVX2__) && defined(__F16C__)
#define COHORT_SET avx2
#define COHORT_WIDTH 32
#include "cohort/collective/kernels/kernels.inc"
#endif
