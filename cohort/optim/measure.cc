#include "cohort/optim/measure.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cohort/base/error.h"
#include "cohort/base/isa.h"
#include "cohort/optim/gpu_measure.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cohort::optim {
namespace {

using Lanes = std::array<double, kMeasureLanes>;

template <class T>
COHORT_INLINE double square(T x) {
  return static_cast<double>(x) * static_cast<double>(x);
}

template <class T>
COHORT_INLINE void add_round(Lanes& sums, const T* data) {
  for (std::size_t lane = 0; lane < kMeasureLanes; ++lane) sums[lane] += square(data[lane]);
}

#if defined(__x86_64__)  // compilers split the conversion of four floats in two
COHORT_FOR_AVX2 inline __m256d four(const float* data) { return _mm256_cvtps_pd(_mm_loadu_ps(data)); }
COHORT_FOR_AVX2 inline __m256d four(const double* data) { return _mm256_loadu_pd(data); }

// A whole block, all of it in registers.
template <class T>
COHORT_FOR_AVX2 double whole_block_avx2(const T* data) {
  __m256d a = _mm256_setzero_pd(), b = a, c = a, d = a;
  for (const T* const end = data + kMeasureBlock; data < end; data += kMeasureLanes) {
    const __m256d p = four(data), q = four(data + 4), r = four(data + 8), s = four(data + 12);
    a += p * p;
    b += q * q;
    c += r * r;
    d += s * s;
  }
  const __m256d four_lanes = (a + c) + (b + d);
  const __m128d two = _mm256_castpd256_pd128(four_lanes) + _mm256_extractf128_pd(four_lanes, 1);
  return two[0] + two[1];
}
#endif

template <class T>
double block_sum([[maybe_unused]] Isa isa, const T* data, std::size_t count) {
#if defined(__x86_64__)
  if (isa == Isa::avx2 && count == kMeasureBlock) return whole_block_avx2(data);
#endif
  Lanes lanes{};
  const std::size_t rounds = count / kMeasureLanes;
  for (std::size_t i = 0; i < rounds; ++i) add_round(lanes, data + i * kMeasureLanes);
  for (std::size_t i = rounds * kMeasureLanes; i < count; ++i) lanes[i % kMeasureLanes] += square(data[i]);
  for (std::size_t half = kMeasureLanes / 2; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

template <class T>
bool finite_block(const T* data, std::size_t count) {
  return std::all_of(data, data + count, [](T x) { return std::isfinite(x); });
}

template <class T>
void add_blocks(const T* data, std::size_t count, Measure& sum) {
  const Isa isa = current_isa();
  for (std::size_t at = 0; at < count; at += kMeasureBlock) {
    const std::size_t n = std::min(kMeasureBlock, count - at);
    const double squared = block_sum(isa, data + at, n);
    sum.squared.add(squared);
    // Squares do not cancel, so a finite sum proves finite elements. Squares of f64 may overflow by themselves: look again.
    if (!std::isfinite(squared)) sum.finite = sum.finite && finite_block(data + at, n);
  }
}

}  // namespace

void measure(const void* data, std::size_t count, Dtype dtype, Measure& sum) {
  dtype == Dtype::f32 ? add_blocks(static_cast<const float*>(data), count, sum) : add_blocks(static_cast<const double*>(data), count, sum);
}

double block_squares(const void* data, std::size_t count, Dtype dtype) {
  const Isa isa = current_isa();
  return dtype == Dtype::f32 ? block_sum(isa, static_cast<const float*>(data), count)
                             : block_sum(isa, static_cast<const double*>(data), count);
}

void add_squares(const void* data, std::size_t count, Dtype dtype, ExactSum& sum) {
  const auto* const bytes = static_cast<const std::byte*>(data);
  for (std::size_t at = 0; at < count; at += kMeasureBlock)
    sum.add(block_squares(bytes + at * size_of(dtype), std::min(kMeasureBlock, count - at), dtype));
}

void add_squares(const Slice& slice, const void* data, ExactSum& sum) {
  if (slice.device.kind == DeviceKind::cpu) return add_squares(data, slice.count, slice.dtype, sum);
  Measure found;
  GpuMeasure& here = GpuMeasure::of_this_thread(slice.device);
  here.begin();
  here.add(data, slice.count, slice.dtype);
  here.end();
  here.await(found);
  sum.add(found.squared);
}

double squared_norm(const void* data, std::size_t count, Dtype dtype) {
  Measure found;
  measure(data, count, dtype, found);
  return found.squared.value();
}

bool all_finite(const void* data, std::size_t count, Dtype dtype) {
  Measure found;
  measure(data, count, dtype, found);
  return found.finite;
}

double clip_coefficient(double squared, double limit) {
  if (!(limit > 0))
    throw_failure(Kind::usage, "optim: gradients cannot be clipped to a norm of {}; give a positive limit, or do not clip", limit);
  if (!std::isfinite(squared))
    throw_failure(Kind::usage, "optim: the squared gradient norm is {}: nothing to clip; drop this step", squared);
  constexpr double kTorchEps = 1e-6;
  return std::min(1.0, limit / (std::sqrt(squared) + kTorchEps));
}

}  // namespace cohort::optim
