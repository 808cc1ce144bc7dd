#include "cohort/data/warp.h"

#include <algorithm>
#include <cstring>
#include <memory>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cohort::data {

namespace {

constexpr int kRun = 64;  // a multiple of 8; pixels whose coordinates are worked out together, so that the compiler can use vectors

// Along one axis: the neighbour below a place, in the padded image, and how far the place is on its way to the next one.
struct Taps {
  int low[kRun];
  float part[kRun];
};

// Along a row of the target: places base + slope * (first + x), x = 0, 1, .., on an axis of `size` pixels, one for the border added.
struct Line {
  float base, slope, first;
  int size;
};

[[gnu::always_inline]] inline void find(Taps& t, const Line& line, int count) {
  const auto [base, slope, first, size] = line;
  const auto end = static_cast<float>(size + 1);
  int* __restrict lows = t.low;
  float* __restrict parts = t.part;
  for (int i = 0; i < count; ++i) {
    float place = base + slope * (first + static_cast<float>(i));
    place = place > 0.0F ? place : 0.0F;  // one pixel outside everything is zero already, and no integer overflows
    place = place < end ? place : end;
    lows[i] = static_cast<int>(place);
    parts[i] = place - static_cast<float>(lows[i]);
  }
}
void find_plain(Taps& t, const Line& line, int count) { find(t, line, count); }

// The image with a border of zeros around every channel, one pixel before and two behind: no place has a neighbour outside.
struct Padded {
  Padded(const float* in, const ImageShape& shape)
      : stride(static_cast<int>(shape.width) + 3),
        plane(stride * (shape.height + 3)),
        pixels(new float[static_cast<std::size_t>(shape.channels * plane)]) {
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      float* to = pixels.get() + c * plane;
      to = std::fill_n(to, stride + 1, 0.0F);
      for (std::int64_t y = 0; y < shape.height; ++y) {
        to = std::copy_n(in + (c * shape.height + y) * shape.width, shape.width, to);
        to = std::fill_n(to, 3, 0.0F);  // two behind this row, one before the next
      }
      std::fill(to, pixels.get() + (c + 1) * plane, 0.0F);
    }
  }
  const int stride;
  const std::int64_t plane;
  const std::unique_ptr<float[]> pixels;  // not cleared first: only the border is zero
};

// Of every pixel of a run four neighbours are blended. Taps are there for whole eights of pixels.
struct Run {
  const float* pixels;  // of the padded channel
  int stride;
  const Taps &xs, &ys;
  int count;
};

void blend_plain(const Run& r, float* __restrict to) {
  for (int i = 0; i < r.count; ++i) {
    const float* upper = r.pixels + static_cast<std::ptrdiff_t>(r.ys.low[i]) * r.stride + r.xs.low[i];
    const float* lower = upper + r.stride;
    const float above = upper[0] + (upper[1] - upper[0]) * r.xs.part[i];
    const float below = lower[0] + (lower[1] - lower[0]) * r.xs.part[i];
    to[i] = above + (below - above) * r.ys.part[i];
  }
}

// What warp() is made of, once per instruction set.
struct Loops {
  void (*find)(Taps& t, const Line& line, int count);
  void (*blend)(const Run& r, float* to);
};

#if defined(__x86_64__)
[[gnu::target("avx2")]] void find_avx2(Taps& t, const Line& line, int count) { find(t, line, count); }

// The left and right neighbours of two places: a pair is one load of eight bytes. Gather instructions took longer.
[[gnu::target("avx2")]] inline __m128 pairs(const float* row, const int* place) {
  double two[2];  // floats lie anywhere: copies, which become loads
  std::memcpy(&two[0], row + place[0], sizeof(double));
  std::memcpy(&two[1], row + place[1], sizeof(double));
  return _mm_castpd_ps(_mm_set_pd(two[1], two[0]));
}

[[gnu::target("avx2")]] inline __m128 between(__m128 a, __m128 b, __m128 part) { return _mm_add_ps(a, _mm_mul_ps(_mm_sub_ps(b, a), part)); }

[[gnu::target("avx2")]] inline __m128 across(const float* row, const int* place, __m128 part) {
  const __m128 a = pairs(row, place), b = pairs(row, place + 2);
  return between(_mm_shuffle_ps(a, b, 0x88), _mm_shuffle_ps(a, b, 0xdd), part);
}

[[gnu::target("avx2")]] inline __m128 blend_four(const Run& r, const int* place, int i) {
  const __m128 x = _mm_loadu_ps(r.xs.part + i), y = _mm_loadu_ps(r.ys.part + i);
  return between(across(r.pixels, place + i, x), across(r.pixels + r.stride, place + i, x), y);
}

// The same operations in the same order, none of them fused: the same bits. A last few pixels are four, too, of which few are kept.
[[gnu::target("avx2")]] void blend_avx2(const Run& r, float* to) {
  int place[kRun];
  for (int i = 0; i < (r.count + 7) / 8 * 8; ++i) place[i] = r.ys.low[i] * r.stride + r.xs.low[i];
  int i = 0;
  for (; i + 4 <= r.count; i += 4) _mm_storeu_ps(to + i, blend_four(r, place, i));
  if (i == r.count) return;
  float last[4];
  _mm_storeu_ps(last, blend_four(r, place, i));
  std::copy_n(last, r.count - i, to + i);
}
Loops best_loops() { return __builtin_cpu_supports("avx2") ? Loops{find_avx2, blend_avx2} : Loops{find_plain, blend_plain}; }
#else
Loops best_loops() { return {find_plain, blend_plain}; }
#endif

}  // namespace

void warp_any(const float* in, float* out, const ImageShape& shape, const Affine& m) {
  static const Loops loops = best_loops();
  const auto height = static_cast<int>(shape.height), width = static_cast<int>(shape.width);
  const float cx = static_cast<float>(width - 1) / 2, cy = static_cast<float>(height - 1) / 2;
  const Padded padded(in, shape);
  Taps xs, ys;
  for (int y = 0; y < height; ++y) {
    const float dy = static_cast<float>(y) - cy, right = cx + 1 + m.x + m.xy * dy, low = cy + 1 + m.y + m.yy * dy;
    for (int first = 0; first < width; first += kRun) {
      const float dx = static_cast<float>(first) - cx;
      const int count = std::min(kRun, width - first), eights = (count + 7) / 8 * 8;
      loops.find(xs, {right, m.xx, dx, width}, eights);
      loops.find(ys, {low, m.yx, dx, height}, eights);
      for (std::int64_t c = 0; c < shape.channels; ++c)
        loops.blend({padded.pixels.get() + c * padded.plane, padded.stride, xs, ys, count},
                    out + c * shape.plane() + y * shape.width + first);
    }
  }
}

Affine operator*(const Affine& a, const Affine& b) {
  return {.xx = a.xx * b.xx + a.xy * b.yx,
          .xy = a.xx * b.xy + a.xy * b.yy,
          .yx = a.yx * b.xx + a.yy * b.yx,
          .yy = a.yx * b.xy + a.yy * b.yy,
          .x = a.xx * b.x + a.xy * b.y + a.x,
          .y = a.yx * b.x + a.yy * b.y + a.y};
}

void warp(const float* in, float* out, const ImageShape& shape, const Affine& map) {
  if (!warp_whole(in, out, shape, map)) warp_any(in, out, shape, map);
}

}  // namespace cohort::data
