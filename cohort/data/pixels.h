// Loops over the pixels of one image: planar float32, channel after channel. Outside an image everything is zero (black).
// Threads: any, pure functions; in and out never overlap. Failure: none, callers have checked shapes. Compiled with -O3.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cohort::data {

struct ImageShape {
  std::int64_t channels = 0, height = 0, width = 0;
  std::int64_t plane() const { return height * width; }
  std::int64_t elements() const { return channels * plane(); }
};

// out[i] = in[i] * times + plus, of bytes and of floats: the same bits for the same values.
struct Scaling {
  float times = 1, plus = 0;
};
void scale_pixels(const std::uint8_t* in, float* out, std::int64_t count, Scaling by);
void scale_pixels(const float* in, float* out, std::int64_t count, Scaling by);
void widen(const std::uint8_t* in, std::int64_t* out, std::int64_t count);

// A map of the plane. Warped by it, an image has at p what it had at centre + m (p - centre) + (x, y); p is (x, y), the centre the image's.
struct Affine {
  float xx = 1, xy = 0, yx = 0, yy = 1;
  float x = 0, y = 0;
  bool operator==(const Affine&) const = default;
};
Affine operator*(const Affine& first, const Affine& then);  // both as one: warped by `first`, and what that gives by `then`

void warp(const float* in, float* out, const ImageShape& shape, const Affine& map);  // bilinear; whole pixels move exactly

}  // namespace cohort::data
