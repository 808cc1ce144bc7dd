#include "cohort/data/warp.h"
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#endif

// A row of the image with its border is 32 bytes, and a permutation of bytes finds the four neighbours of sixteen places in eight such
// rows at once. The operations on what it found and their order are those of warp_any, none of them fused: the same bits.
namespace cohort::data {

#if defined(__x86_64__)
#define COHORT_BYTES gnu::target("avx512f,avx512bw,avx512vl,avx512vbmi")
#define COHORT_INLINE [[COHORT_BYTES, gnu::always_inline]] inline
namespace {

constexpr int kLanes = 16, kStride = 2 * kLanes, kWidth = kStride - 2, kHeight = 61;
constexpr int kWindow = 8;                               // rows that an index of one byte reaches
constexpr int kWhole = kWindow - 1;                      // of these have the row below them in it, too
constexpr std::ptrdiff_t kHalf = kWindow * kStride / 2;  // bytes that one permutation sees

// One channel with a border of zeros: a row before and two behind; a column before, and behind up to the end of the stride. Further
// behind lies what windows may see and no place asks for.
struct Plane {
  alignas(64) std::uint8_t pixels[(2 * (kHeight + 3) + kWindow) * kStride];
};

COHORT_INLINE void fill(Plane& plane, const std::uint8_t* in, int height, int width) {
  const auto columns = static_cast<__mmask32>(((1ULL << width) - 1) << 1);
  std::uint8_t* to = plane.pixels;
  for (int y = -1; y < height + 2; ++y, to += kStride) {
    const __mmask32 seen = y >= 0 && y < height ? columns : 0;
    const std::uint8_t* from = in + std::ptrdiff_t{y} * width - 1;  // what the mask leaves out is not read
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm256_maskz_loadu_epi8(seen, from));
  }
}

// Along one axis: places base + slope * (first + x), x = 0, 1, ..; the base is another for every row of the target, the rest is worked out
// once, for both halves of a row.
struct Axis {
  float end;
  __m512 along[2];
};

COHORT_INLINE Axis axis(int size, float slope, float first) {
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

COHORT_INLINE Taps find(const Axis& a, float base, int half) {
  __m512 place = _mm512_add_ps(_mm512_set1_ps(base), a.along[half]);
  place = _mm512_min_ps(_mm512_max_ps(place, _mm512_setzero_ps()), _mm512_set1_ps(a.end));
  const __m512i low = _mm512_cvttps_epi32(place);
  return {low, _mm512_sub_ps(place, _mm512_cvtepi32_ps(low))};
}

// Between a and b.
COHORT_INLINE __m512 between(__m512 a, __m512 b, __m512 part) { return _mm512_add_ps(a, _mm512_mul_ps(_mm512_sub_ps(b, a), part)); }

template <int which>
COHORT_INLINE __m512 floats(__m512i neighbours) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(neighbours, which)));
}

// The four neighbours of sixteen places, sixteen after sixteen: above, above right, below, below right. Columns beyond the stride are the
// first of the next row, a zero, too.
COHORT_INLINE __m512i neighbours(const std::uint8_t* window, __m512i places, bool low_half_only) {
  const __m512i step = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(_mm_set1_epi8(1), _mm_setzero_si128())),
                                          _mm256_set_m128i(_mm_set1_epi8(kStride + 1), _mm_set1_epi8(kStride)), 1);
  const __m512i at = _mm512_add_epi8(_mm512_broadcast_i32x4(_mm512_cvtepi32_epi8(places)), step);
  const __m512i upper = _mm512_permutex2var_epi8(_mm512_loadu_si512(window), at, _mm512_loadu_si512(window + kHalf / 2));
  if (low_half_only) return upper;
  const __m512i lower = _mm512_permutex2var_epi8(_mm512_loadu_si512(window + kHalf), at, _mm512_loadu_si512(window + kHalf / 2 * 3));
  return _mm512_mask_mov_epi8(upper, _mm512_movepi8_mask(at), lower);
}

COHORT_INLINE __m512 blend(const std::uint8_t* window, const Taps& xs, __m512i rows, __m512 down, bool low_half_only) {
  const __m512i four = neighbours(window, _mm512_add_epi32(_mm512_slli_epi32(rows, 5), xs.low), low_half_only);
  return between(between(floats<0>(four), floats<1>(four), xs.part), between(floats<2>(four), floats<3>(four), xs.part), down);
}

// Sixteen places, which touch `count` rows from the first one on: window after window, each keeps the places it has whole.
COHORT_INLINE __m512 blend_all(const Plane& plane, const Taps& xs, const Taps& ys, bool climbs, int count) {
  const __m512i first = climbs ? ys.low : _mm512_permutexvar_epi32(_mm512_set1_epi32(kLanes - 1), ys.low);
  const int top = _mm_cvtsi128_si32(_mm512_castsi512_si128(first));
  const std::uint8_t* window = plane.pixels + std::ptrdiff_t{top} * kStride;
  __m512i rows = _mm512_sub_epi32(ys.low, _mm512_broadcastd_epi32(_mm512_castsi512_si128(first)));
  __m512 all = blend(window, xs, rows, ys.part, count <= kWindow / 2);
  for (int seen = kWhole; seen < count - 1; seen += kWhole) {
    window += std::ptrdiff_t{kWhole} * kStride;
    rows = _mm512_sub_epi32(rows, _mm512_set1_epi32(kWhole));
    const __mmask16 here = _mm512_cmpge_epi32_mask(rows, _mm512_setzero_si512());
    all = _mm512_mask_mov_ps(all, here, blend(window, xs, rows, ys.part, false));
  }
  return all;
}

// Rows that sixteen places can touch: as far as they climb, one more when they start inside a pixel, and one below the last. The same for
// all groups of an image: a loop whose end the processor cannot foretell cost more than the rows it saves.
int rows_touched(float slope, int height) {
  return static_cast<int>(std::min(std::abs(slope) * (kLanes - 1) + 3, static_cast<float>(height + 3)));
}

[[COHORT_BYTES]] void warp_plane(const std::uint8_t* in, float* out, int height, int width, const Affine& m, Scaling scaling) {
  const float cx = static_cast<float>(width - 1) / 2, cy = static_cast<float>(height - 1) / 2;
  Plane plane;
  fill(plane, in, height, width);
  const Axis across = axis(width, m.xx, -cx), down = axis(height, m.yx, -cx);
  const int count = rows_touched(m.yx, height);
  const __m512 times = _mm512_set1_ps(scaling.times), plus = _mm512_set1_ps(scaling.plus);
  for (int y = 0; y < height; ++y) {
    const float dy = static_cast<float>(y) - cy, right = cx + 1 + m.x + m.xy * dy, low = cy + 1 + m.y + m.yy * dy;
    for (int first = 0; first < width; first += kLanes) {
      const int half = first / kLanes;
      const __m512 warped = blend_all(plane, find(across, right, half), find(down, low, half), m.yx >= 0, count);
      const auto kept = static_cast<__mmask16>((1U << std::min(kLanes, width - first)) - 1);
      _mm512_mask_storeu_ps(out + std::ptrdiff_t{y} * width + first, kept, _mm512_add_ps(_mm512_mul_ps(warped, times), plus));
    }
  }
}

}  // namespace
#undef COHORT_INLINE
#undef COHORT_BYTES

bool warp_small(const std::uint8_t* in, float* out, int height, int width, const Affine& m, Scaling scaling) {
  static const bool can = __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vl");
  if (!can || width > kWidth || height > kHeight || !std::isfinite(m.yx)) return false;
  warp_plane(in, out, height, width, m, scaling);
  return true;
}
#else
bool warp_small(const std::uint8_t*, float*, int, int, const Affine&, Scaling) { return false; }
#endif

}  // namespace cohort::data
