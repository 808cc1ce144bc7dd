// The two ways behind warp() of pixels.h: any image and map, and maps that move whole pixels. The same bits. Threads: any, pure functions.
// For these files and their tests only.
#pragma once
#include "cohort/data/pixels.h"

namespace cohort::data {

void warp_any(const float* in, float* out, const ImageShape& shape, const Affine& m);

// A shift by whole pixels, mirrored or not. False, and nothing done: the map is more than that.
bool warp_whole(const float* in, float* out, const ImageShape& shape, const Affine& m);

}  // namespace cohort::data
