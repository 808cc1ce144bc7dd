// The ways behind warp() of pixels.h: any image and map, maps that move whole pixels, images so small that some rows fit into a register.
// The same bits. Threads: any, pure functions. For these files and their tests only.
#pragma once
#include "cohort/data/pixels.h"

namespace cohort::data {

void warp_any(const float* in, float* out, const ImageShape& shape, const Affine& m);

// A shift by whole pixels, mirrored or not.
bool moves_whole_pixels(const Affine& m);
// False, and nothing done: the map is more than that.
bool warp_whole(const float* in, float* out, const ImageShape& shape, const Affine& m);

// One channel from its bytes, each pixel scaled as it is stored. False, and nothing done: the image is wider than 30 or higher than 61
// pixels, or the processor has no AVX-512 with permutations of bytes (VBMI).
bool warp_small(const std::uint8_t* in, float* out, int height, int width, const Affine& m, Scaling scaling);

}  // namespace cohort::data
