// The ways behind warp() of pixels.h: any image and map, maps that move whole pixels, images so small that a row fits into two registers.
// The same bits. Threads: any, pure functions. For these files and their tests only.
#pragma once
#include "cohort/data/pixels.h"

namespace cohort::data {

void warp_any(const float* in, float* out, const ImageShape& shape, const Affine& m);

// False, and nothing done: the map is more than a shift by whole pixels, mirrored or not.
bool warp_whole(const float* in, float* out, const ImageShape& shape, const Affine& m);

// False, and nothing done: the image is wider than 30 or higher than 61 pixels, or the processor has no AVX-512.
bool warp_small(const float* in, float* out, const ImageShape& shape, const Affine& m);

}  // namespace cohort::data
