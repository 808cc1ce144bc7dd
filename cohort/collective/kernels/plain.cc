// The portable set: vectors of 16 bytes in whatever instructions the compiler's baseline has, NaN rules spelled out.
#define COHORT_SET plain
#define COHORT_WIDTH 16
#include "cohort/collective/kernels/kernels.inc"
