#include "cohort/data/warp.h"
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#endif

// Neighbours are picked out of whole rows by a permutation of two registers, instead of one load for every pair of them. The operations
// and their order are those of warp_any, none of them fused: the same bits. 28 x 28 took 0.6 of its time.
namespace cohort::data {

#if defined(__x86_64__)
#define COHORT_AVX512 [[gnu::target("avx512f"), gnu::always_inline]] inline
namespace {

constexpr int kLanes = 16, kStride = 2 * kLanes, kWidth = kStride - 2, kHeight = 61;

// One channel with a border of zeros: a row before and two behind; a column before, and behind up to the end of two registers.
struct Rows {
  alignas(64) float pixels[(kHeight + 3) * kStride];
};

COHORT_AVX512 void fill(Rows& rows, const float* in, int height, int width) {
  const auto columns = static_cast<__mmask32>(((1ULL << width) - 1) << 1);
  float* to = rows.pixels;
  for (int y = -1; y < height + 2; ++y, to += kStride) {
    const __mmask32 seen = y >= 0 && y < height ? columns : 0;
    const float* from = in + std::ptrdiff_t{y} * width - 1;  // what the mask leaves out is not read
    _mm512_store_ps(to, _mm512_maskz_loadu_ps(static_cast<__mmask16>(seen), from));
    _mm512_store_ps(to + kLanes, _mm512_maskz_loadu_ps(static_cast<__mmask16>(seen >> kLanes), from + kLanes));
  }
}

// Along one axis: places base + slope * (first + x), x = 0, 1, ..; the base is another for every row of the target, the rest is worked out
// once, for both halves of a row.
struct Axis {
  float end;
  __m512 along[2];
};

COHORT_AVX512 Axis axis(int size, float slope, float first) {
  Axis a{static_cast<float>(size + 1), {}};
  const __m512 ramp = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int half = 0; half < 2; ++half) {
    const __m512 x = _mm512_add_ps(ramp, _mm512_set1_ps(static_cast<float>(half * kLanes)));
    a.along[half] = _mm512_mul_ps(_mm512_set1_ps(slope), _mm512_add_ps(_mm512_set1_ps(first), x));
  }
  return a;
}

// The neighbour below a place, and how far the place is on its way to the next one.
struct Taps {
  __m512i low;
  __m512 part;
};

COHORT_AVX512 Taps find(const Axis& a, float base, int half) {
  __m512 place = _mm512_add_ps(_mm512_set1_ps(base), a.along[half]);
  place = _mm512_min_ps(_mm512_max_ps(place, _mm512_setzero_ps()), _mm512_set1_ps(a.end));
  const __m512i low = _mm512_cvttps_epi32(place);
  return {low, _mm512_sub_ps(place, _mm512_cvtepi32_ps(low))};
}

// Between a and b.
COHORT_AVX512 __m512 between(__m512 a, __m512 b, __m512 part) { return _mm512_add_ps(a, _mm512_mul_ps(_mm512_sub_ps(b, a), part)); }

// Sixteen pixels of a row of the target, and where their neighbours lie in a channel with its border.
struct Group {
  Taps xs, ys;
  __m512i right;  // columns; the one behind the last register is the first, a zero, too
  int top;        // the first of the rows they need
};

COHORT_AVX512 Group group(const Taps& xs, const Taps& ys, bool climbs) {
  const __m512i first = climbs ? ys.low : _mm512_permutexvar_epi32(_mm512_set1_epi32(kLanes - 1), ys.low);
  return {xs, ys, _mm512_add_epi32(xs.low, _mm512_set1_epi32(1)), _mm_cvtsi128_si32(_mm512_castsi512_si128(first))};
}

// What each place would take from a row, for `count` rows; kept where that row is the one above or below the place.
COHORT_AVX512 __m512 blend(const Group& g, const Rows& rows, int top, int count) {
  __m512 above = _mm512_setzero_ps(), below = above;
  __m512i row = _mm512_set1_epi32(top);
  __mmask16 is_below = 0;
  const float* from = rows.pixels + std::ptrdiff_t{top} * kStride;
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i, from += kStride) {
    const __m512 low = _mm512_load_ps(from), high = _mm512_load_ps(from + kLanes);
    const __m512 a = _mm512_permutex2var_ps(low, g.xs.low, high);
    const __m512 b = _mm512_permutex2var_ps(low, g.right, high);
    const __m512 here = between(a, b, g.xs.part);
    const __mmask16 is_above = _mm512_cmpeq_epi32_mask(g.ys.low, row);
    above = _mm512_mask_mov_ps(above, is_above, here);
    below = _mm512_mask_mov_ps(below, is_below, here);
    is_below = is_above;
    row = _mm512_add_epi32(row, _mm512_set1_epi32(1));
  }
  return between(above, below, g.ys.part);
}

// Rows that sixteen places can touch: as far as they climb, one more when they start inside a pixel, and one below the last. The same for
// all groups of an image: a loop whose end the processor cannot foretell cost more than the rows it saves.
int rows_touched(float slope, int height) {
  return static_cast<int>(std::min(std::abs(slope) * (kLanes - 1) + 3, static_cast<float>(height + 3)));
}

[[gnu::target("avx512f")]] void warp_channel(const float* in, float* out, int height, int width, const Affine& m) {
  const float cx = static_cast<float>(width - 1) / 2, cy = static_cast<float>(height - 1) / 2;
  Rows rows;
  fill(rows, in, height, width);
  const Axis across = axis(width, m.xx, -cx), down = axis(height, m.yx, -cx);
  const int count = rows_touched(m.yx, height);
  for (int y = 0; y < height; ++y) {
    const float dy = static_cast<float>(y) - cy, right = cx + 1 + m.x + m.xy * dy, low = cy + 1 + m.y + m.yy * dy;
    for (int first = 0; first < width; first += kLanes) {
      const int half = first / kLanes;
      const Group g = group(find(across, right, half), find(down, low, half), m.yx >= 0);
      const auto kept = static_cast<__mmask16>((1U << std::min(kLanes, width - first)) - 1);
      _mm512_mask_storeu_ps(out + std::ptrdiff_t{y} * width + first, kept, blend(g, rows, std::min(g.top, height + 3 - count), count));
    }
  }
}

}  // namespace
#undef COHORT_AVX512

bool warp_small(const float* in, float* out, const ImageShape& shape, const Affine& m) {
  static const bool can = __builtin_cpu_supports("avx512f");
  if (!can || shape.width > kWidth || shape.height > kHeight || !std::isfinite(m.yx)) return false;
  for (std::int64_t c = 0; c < shape.channels; ++c)
    warp_channel(in + c * shape.plane(), out + c * shape.plane(), static_cast<int>(shape.height), static_cast<int>(shape.width), m);
  return true;
}
#else
bool warp_small(const float*, float*, const ImageShape&, const Affine&) { return false; }
#endif

}  // namespace cohort::data
