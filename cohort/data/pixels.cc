#include "cohort/data/pixels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cohort::data {

void scale_pixels(const std::uint8_t* __restrict in, float* __restrict out, std::int64_t count, float times, float plus) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]) * times + plus;
}

void scale_pixels(const float* __restrict in, float* __restrict out, std::int64_t count, float times, float plus) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = in[i] * times + plus;
}

void widen(const std::uint8_t* __restrict in, std::int64_t* __restrict out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = in[i];
}

void mirror(const float* __restrict in, float* __restrict out, const ImageShape& shape) {
  const std::int64_t width = shape.width;
  for (std::int64_t row = 0; row < shape.channels * shape.height; ++row) {
    const float* from = in + row * width;
    float* to = out + row * width;
    for (std::int64_t x = 0; x < width; ++x) to[x] = from[width - 1 - x];
  }
}

void move(const float* __restrict in, float* __restrict out, const ImageShape& shape, std::int64_t down, std::int64_t right) {
  const std::int64_t height = shape.height, width = shape.width;
  std::memset(out, 0, static_cast<std::size_t>(shape.elements()) * sizeof(float));
  const std::int64_t columns = width - std::abs(right);
  if (columns <= 0) return;
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    for (std::int64_t y = std::max<std::int64_t>(0, down); y < std::min(height, height + down); ++y) {
      const float* from = in + c * shape.plane() + (y - down) * width + std::max<std::int64_t>(0, -right);
      float* to = out + c * shape.plane() + y * width + std::max<std::int64_t>(0, right);
      std::memcpy(to, from, static_cast<std::size_t>(columns) * sizeof(float));
    }
  }
}

namespace {

constexpr int kRun = 64;  // pixels whose coordinates are worked out together, so that the compiler can use vectors

// Along one axis: the neighbour below a place, in the padded image, and how far the place is on its way to the next one.
struct Taps {
  int low[kRun];
  float part[kRun];
};

// Along a row of the target: places centre + (start + slope * x), x = first, first + 1, .., on an axis of `size` pixels.
struct Line {
  float centre, start, slope, first;
  int size;
};

[[gnu::always_inline]] inline void find(Taps& t, const Line& line, int count) {
  const auto [centre, start, slope, first, size] = line;
  const auto end = static_cast<float>(size);
  int* __restrict lows = t.low;
  float* __restrict parts = t.part;
  for (int i = 0; i < count; ++i) {
    float place = centre + (start + slope * (first + static_cast<float>(i)));
    place = place > -1.0F ? place : -1.0F;  // one pixel outside everything is zero already, and no integer overflows
    place = place < end ? place : end;
    lows[i] = static_cast<int>(place + 1);  // floor, and one for the border
    parts[i] = place - static_cast<float>(lows[i] - 1);
  }
}
void find_plain(Taps& t, const Line& line, int count) { find(t, line, count); }

// The image with a border of zeros around every channel, one pixel before and two behind: no place has a neighbour outside.
struct Padded {
  Padded(const float* in, const ImageShape& shape)
      : stride(static_cast<int>(shape.width) + 3),
        plane(stride * (shape.height + 3)),
        pixels(static_cast<std::size_t>(shape.channels * plane)) {
    for (std::int64_t row = 0; row < shape.channels * shape.height; ++row) {
      float* const to = pixels.data() + row / shape.height * plane + (row % shape.height + 1) * stride + 1;
      std::memcpy(to, in + row * shape.width, static_cast<std::size_t>(shape.width) * sizeof(float));
    }
  }
  const int stride;
  const std::int64_t plane;
  std::vector<float> pixels;
};

// Pixels first .. count - 1 of a run: of every one four neighbours are blended.
struct Run {
  const float* pixels;  // of the padded channel
  int stride;
  const Taps &xs, &ys;
  int count;
};

void blend_plain(const Run& r, float* __restrict to, int first) {
  for (int i = first; i < r.count; ++i) {
    const float* upper = r.pixels + static_cast<std::ptrdiff_t>(r.ys.low[i]) * r.stride + r.xs.low[i];
    const float* lower = upper + r.stride;
    const float above = upper[0] * (1 - r.xs.part[i]) + upper[1] * r.xs.part[i];
    const float below = lower[0] * (1 - r.xs.part[i]) + lower[1] * r.xs.part[i];
    to[i] = above * (1 - r.ys.part[i]) + below * r.ys.part[i];
  }
}

// What warp() is made of, once per instruction set.
struct Loops {
  void (*find)(Taps& t, const Line& line, int count);
  void (*blend)(const Run& r, float* to, int first);
};

#if defined(__x86_64__)
[[gnu::target("avx2")]] void find_avx2(Taps& t, const Line& line, int count) { find(t, line, count); }

// Between the left and right neighbours of 8 places. Both come with one 8-byte element of a gather; of pixels 0 1 4 5 and 2 3 6 7, so that
// taking them apart needs no further permutation.
[[gnu::target("avx2")]] inline __m256 between(const float* row, __m256i places, __m256 part, __m256 rest) {
  const __m256i order = _mm256_permute4x64_epi64(places, 0xd8);
  const auto* base = reinterpret_cast<const double*>(row);
  const __m256d zero = _mm256_setzero_pd(), all = _mm256_castsi256_pd(_mm256_set1_epi64x(-1));
  const __m256 a = _mm256_castpd_ps(_mm256_mask_i32gather_pd(zero, base, _mm256_castsi256_si128(order), all, 4));
  const __m256 b = _mm256_castpd_ps(_mm256_mask_i32gather_pd(zero, base, _mm256_extracti128_si256(order, 1), all, 4));
  return _mm256_add_ps(_mm256_mul_ps(_mm256_shuffle_ps(a, b, 0x88), rest), _mm256_mul_ps(_mm256_shuffle_ps(a, b, 0xdd), part));
}

// The same operations in the same order, none of them fused: the same bits.
[[gnu::target("avx2")]] void blend_avx2(const Run& r, float* to, int first) {
  const __m256 one = _mm256_set1_ps(1);
  int i = first;
  for (; i + 8 <= r.count; i += 8) {
    const __m256i row = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(r.ys.low + i));
    const __m256i column = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(r.xs.low + i));
    const __m256i places = _mm256_add_epi32(_mm256_mullo_epi32(row, _mm256_set1_epi32(r.stride)), column);
    const __m256 x = _mm256_loadu_ps(r.xs.part + i), y = _mm256_loadu_ps(r.ys.part + i);
    const __m256 above = between(r.pixels, places, x, _mm256_sub_ps(one, x));
    const __m256 below = between(r.pixels + r.stride, places, x, _mm256_sub_ps(one, x));
    _mm256_storeu_ps(to + i, _mm256_add_ps(_mm256_mul_ps(above, _mm256_sub_ps(one, y)), _mm256_mul_ps(below, y)));
  }
  _mm256_zeroupper();  // the compiler forgets it before this call, and what follows would run at a third of its speed
  blend_plain(r, to, i);
}
Loops best_loops() { return __builtin_cpu_supports("avx2") ? Loops{find_avx2, blend_avx2} : Loops{find_plain, blend_plain}; }
#else
Loops best_loops() { return {find_plain, blend_plain}; }
#endif

}  // namespace

void warp(const float* in, float* out, const ImageShape& shape, const Linear& m) {
  static const Loops loops = best_loops();
  const auto height = static_cast<int>(shape.height), width = static_cast<int>(shape.width);
  const float cx = static_cast<float>(width - 1) / 2, cy = static_cast<float>(height - 1) / 2;
  const Padded padded(in, shape);
  Taps xs, ys;
  for (int y = 0; y < height; ++y) {
    const float dy = static_cast<float>(y) - cy;
    for (int first = 0; first < width; first += kRun) {
      const float dx = static_cast<float>(first) - cx;
      const int count = std::min(kRun, width - first);
      loops.find(xs, {cx, m.xy * dy, m.xx, dx, width}, count);
      loops.find(ys, {cy, m.yy * dy, m.yx, dx, height}, count);
      for (std::int64_t c = 0; c < shape.channels; ++c)
        loops.blend({padded.pixels.data() + c * padded.plane, padded.stride, xs, ys, count},
                    out + c * shape.plane() + y * shape.width + first, 0);
    }
  }
}

}  // namespace cohort::data
