// The two ways behind warp() of pixels.h: any image, and images so small that a row fits into two registers. The same bits.
// Threads: any, pure functions. For warp.cc, warp_small.cc and their test only.
#pragma once
#include "cohort/data/pixels.h"

namespace cohort::data {

void warp_any(const float* in, float* out, const ImageShape& shape, const Linear& m);

// False, and nothing done: the image is wider than 30 or higher than 61 pixels, or the processor has no AVX-512.
bool warp_small(const float* in, float* out, const ImageShape& shape, const Linear& m);

}  // namespace cohort::data
