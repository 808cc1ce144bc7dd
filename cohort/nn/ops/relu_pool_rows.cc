#include "cohort/nn/ops/relu_pool_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cohort::nn {
namespace {

constexpr std::uint8_t kNone = 4;

// What pooling leaves out: the last column of this pair of rows, and below the last pair of an image its last row.
void clear_rest(float* top, const PoolShape& shape, std::int64_t pair) {
  if (shape.width % 2 != 0) top[shape.width - 1] = top[2 * shape.width - 1] = 0;
  if (shape.height % 2 != 0 && (pair + 1) % shape.pairs() == 0) std::fill_n(top + 2 * shape.width, shape.width, 0.0F);
}

}  // namespace

void pool_rows(const PoolRows& rows, const PoolShape& shape, std::int64_t first, std::int64_t end) {
  for (std::int64_t pair = first; pair < end; ++pair) {
    const float* const top = rows.x + shape.top(pair);
    for (std::int64_t j = 0; j < shape.out(); ++j) {
      const float four[] = {top[2 * j], top[2 * j + 1], top[shape.width + 2 * j], top[shape.width + 2 * j + 1]};
      std::uint8_t at = 0;
      for (std::uint8_t k = 1; k < 4; ++k)
        if (four[k] > four[at] || std::isnan(four[k])) at = k;
      const bool above = !(four[at] <= 0);
      rows.y[pair * shape.out() + j] = above ? four[at] : 0;
      rows.places[pair * shape.out() + j] = above ? at : kNone;
    }
  }
}

void unpool_rows(const UnpoolRows& rows, const PoolShape& shape, std::int64_t first, std::int64_t end) {
  for (std::int64_t pair = first; pair < end; ++pair) {
    float* const top = rows.x + shape.top(pair);
    for (std::int64_t j = 0; j < shape.out(); ++j) {
      const auto place = rows.places[pair * shape.out() + j];
      const float given = rows.out[pair * shape.out() + j];
      for (std::uint8_t k = 0; k < 4; ++k) top[(k / 2) * shape.width + 2 * j + k % 2] = k == place ? given : 0;
    }
    clear_rest(top, shape, pair);
  }
}

#if defined(__x86_64__)
namespace {

#define COHORT_AVX2 [[gnu::target("avx2")]]
#define COHORT_AVX2_INLINE [[gnu::target("avx2"), gnu::always_inline]] inline

constexpr std::int64_t kWide = 8;

// All bits of the first n.
COHORT_AVX2_INLINE __m256i first_of(std::int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

struct Best {
  __m256 value, place;  // places as whole numbers, in their bits
};

COHORT_AVX2_INLINE void rival(Best& best, __m256 other, int place) {
  const __m256 wins = _mm256_or_ps(_mm256_cmp_ps(other, best.value, _CMP_GT_OQ), _mm256_cmp_ps(other, other, _CMP_UNORD_Q));
  best.value = _mm256_blendv_ps(best.value, other, wins);
  best.place = _mm256_blendv_ps(best.place, _mm256_castsi256_ps(_mm256_set1_epi32(place)), wins);
}

// Of sixteen columns of two rows. A shuffle works on halves, so eight results come as 0 1 4 5 2 3 6 7, and are put in order at the end.
COHORT_AVX2_INLINE Best best_of(__m256 above0, __m256 above8, __m256 below0, __m256 below8) {
  constexpr int kEven = 0x88, kOdd = 0xDD, kInOrder = 0xD8;
  Best best{_mm256_shuffle_ps(above0, above8, kEven), _mm256_setzero_ps()};
  rival(best, _mm256_shuffle_ps(above0, above8, kOdd), 1);
  rival(best, _mm256_shuffle_ps(below0, below8, kEven), 2);
  rival(best, _mm256_shuffle_ps(below0, below8, kOdd), 3);
  const __m256 above = _mm256_cmp_ps(best.value, _mm256_setzero_ps(), _CMP_NLE_UQ);
  best.value = _mm256_and_ps(best.value, above);
  best.place = _mm256_blendv_ps(_mm256_castsi256_ps(_mm256_set1_epi32(kNone)), best.place, above);
  best.value = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(best.value), kInOrder));
  best.place = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(best.place), kInOrder));
  return best;
}

COHORT_AVX2_INLINE __m128i as_bytes(__m256 places) {
  const __m256i all = _mm256_castps_si256(places);
  const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  return _mm_packus_epi16(halves, halves);
}

// Two rows of sixteen columns from eight numbers and their places.
struct UnpoolOp {
  __m256 above0, above8, below0, below8;
};
COHORT_AVX2_INLINE UnpoolOp unpool_of(__m256 given, const std::uint8_t* places) {
  const __m256i at = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(places)));
  __m256 of[4];
  for (int k = 0; k < 4; ++k) of[k] = _mm256_and_ps(given, _mm256_castsi256_ps(_mm256_cmpeq_epi32(at, _mm256_set1_epi32(k))));
  const __m256 low = _mm256_unpacklo_ps(of[0], of[1]), high = _mm256_unpackhi_ps(of[0], of[1]);
  const __m256 low_below = _mm256_unpacklo_ps(of[2], of[3]), high_below = _mm256_unpackhi_ps(of[2], of[3]);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31),
          _mm256_permute2f128_ps(low_below, high_below, 0x20), _mm256_permute2f128_ps(low_below, high_below, 0x31)};
}

}  // namespace

bool has_avx2_rows() { return __builtin_cpu_supports("avx2"); }

COHORT_AVX2 void pool_rows_wide(const PoolRows& rows, const PoolShape& shape, std::int64_t first, std::int64_t end) {
  const std::int64_t out = shape.out(), whole = out / kWide * kWide, rest = out - whole;
  const __m256i columns0 = first_of(2 * rest), columns8 = first_of(2 * rest - kWide), results = first_of(rest);
  for (std::int64_t pair = first; pair < end; ++pair) {
    const float *above = rows.x + shape.top(pair), *below = above + shape.width;
    float* const y = rows.y + pair * out;
    std::uint8_t* const places = rows.places + pair * out;
    for (std::int64_t j = 0; j < whole; j += kWide) {
      const Best best = best_of(_mm256_loadu_ps(above + 2 * j), _mm256_loadu_ps(above + 2 * j + kWide), _mm256_loadu_ps(below + 2 * j),
                                _mm256_loadu_ps(below + 2 * j + kWide));
      _mm256_storeu_ps(y + j, best.value);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(places + j), as_bytes(best.place));
    }
    if (rest == 0) continue;
    above += 2 * whole, below += 2 * whole;
    const Best best = best_of(_mm256_maskload_ps(above, columns0), _mm256_maskload_ps(above + kWide, columns8),
                              _mm256_maskload_ps(below, columns0), _mm256_maskload_ps(below + kWide, columns8));
    _mm256_maskstore_ps(y + whole, results, best.value);
    const std::int64_t bytes = _mm_cvtsi128_si64(as_bytes(best.place));
    // What is too much is written over by the pairs that follow. Behind the last ones of a thread are another's.
    const bool fits = pair * out + whole + kWide <= end * out;
    std::memcpy(places + whole, &bytes, fits ? sizeof bytes : static_cast<std::size_t>(rest));
  }
}

COHORT_AVX2 void unpool_rows_wide(const UnpoolRows& rows, const PoolShape& shape, std::int64_t first, std::int64_t end) {
  const std::int64_t out = shape.out(), whole = out / kWide * kWide, rest = out - whole;
  const __m256i columns0 = first_of(2 * rest), columns8 = first_of(2 * rest - kWide), results = first_of(rest);
  for (std::int64_t pair = first; pair < end; ++pair) {
    float* const top = rows.x + shape.top(pair);
    float *above = top, *below = top + shape.width;
    const float* const given = rows.out + pair * out;
    const std::uint8_t* const places = rows.places + pair * out;
    for (std::int64_t j = 0; j < whole; j += kWide, above += 2 * kWide, below += 2 * kWide) {
      const UnpoolOp s = unpool_of(_mm256_loadu_ps(given + j), places + j);
      _mm256_storeu_ps(above, s.above0);
      _mm256_storeu_ps(above + kWide, s.above8);
      _mm256_storeu_ps(below, s.below0);
      _mm256_storeu_ps(below + kWide, s.below8);
    }
    if (rest > 0) {
      const UnpoolOp s = unpool_of(_mm256_maskload_ps(given + whole, results), places + whole);
      _mm256_maskstore_ps(above, columns0, s.above0);
      _mm256_maskstore_ps(above + kWide, columns8, s.above8);
      _mm256_maskstore_ps(below, columns0, s.below0);
      _mm256_maskstore_ps(below + kWide, columns8, s.below8);
    }
    clear_rest(top, shape, pair);
  }
}
#else
bool has_avx2_rows() { return false; }
void pool_rows_wide(const PoolRows& rows, const PoolShape& shape, std::int64_t first, std::int64_t end) {
  pool_rows(rows, shape, first, end);
}
void unpool_rows_wide(const UnpoolRows& rows, const PoolShape& shape, std::int64_t first, std::int64_t end) {
  unpool_rows(rows, shape, first, end);
}
#endif

}  // namespace cohort::nn
