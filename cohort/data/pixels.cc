#include "cohort/data/pixels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cohort::data {

namespace {

// One body, compiled for each instruction set: the same operations, none of them fused, so the same bits.
template <class T>
[[gnu::always_inline]] inline void scale(const T* __restrict in, float* __restrict out, std::int64_t count, Scaling by) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]) * by.times + by.plus;
}

template <class T>
using Loop = void (*)(const T* in, float* out, std::int64_t count, Scaling by);

template <class T>
void scale_plain(const T* in, float* out, std::int64_t count, Scaling by) {
  scale(in, out, count, by);
}

#if defined(__x86_64__)
template <class T>
[[gnu::target("avx2")]] void scale_avx2(const T* in, float* out, std::int64_t count, Scaling by) {
  scale(in, out, count, by);
}
template <class T>
[[gnu::target("avx512f,avx512bw,prefer-vector-width=512")]] void scale_avx512(const T* in, float* out, std::int64_t count, Scaling by) {
  scale(in, out, count, by);
}

template <class T>
Loop<T> best_scaling() {
  if (__builtin_cpu_supports("avx512bw")) return scale_avx512<T>;
  return __builtin_cpu_supports("avx2") ? scale_avx2<T> : scale_plain<T>;
}
#else
template <class T>
Loop<T> best_scaling() {
  return scale_plain<T>;
}
#endif

}  // namespace

void scale_pixels(const std::uint8_t* in, float* out, std::int64_t count, Scaling by) {
  static const auto best = best_scaling<std::uint8_t>();
  best(in, out, count, by);
}

void scale_pixels(const float* in, float* out, std::int64_t count, Scaling by) {
  static const auto best = best_scaling<float>();
  best(in, out, count, by);
}

void widen(const std::uint8_t* __restrict in, std::int64_t* __restrict out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = in[i];
}

}  // namespace cohort::data
