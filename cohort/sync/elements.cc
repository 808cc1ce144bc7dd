#include "cohort/sync/elements.h"

#include <algorithm>
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/cuda/elements.h"
#include "cohort/cuda/runtime.h"
#include "cohort/optim/gpu_measure.h"

namespace cohort::sync {
namespace {

bool on_gpu(const Piece& a) { return a.device.kind == DeviceKind::cuda; }

void check(const Piece& a, const Piece& b) {
  if (a.device != b.device) throw_failure(Kind::bug, "{} elements of a GPU meet as many that lie elsewhere", a.count);
  if (a.count != b.count || a.dtype != b.dtype)
    throw_failure(Kind::bug, "{} {} elements meet {} of {}", a.count, name_of(a.dtype), b.count, name_of(b.dtype));
}

// call(x, y): the new value of x.
template <class Call>
void pass(const Piece& to, const Piece& from, const Call& call) {
  const auto over = [&](auto zero) {
    using T = decltype(zero);
    T* const x = static_cast<T*>(to.data);
    const T* const y = static_cast<const T*>(from.data);
    for (std::size_t i = 0; i < to.count; ++i) x[i] = call(x[i], y[i]);
  };
  to.dtype == Dtype::f32 ? over(float{}) : over(double{});
}

}  // namespace

void fill(const Piece& to, double value) {
  if (on_gpu(to)) return cuda::fill(to, value);
  const auto over = [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(static_cast<T*>(to.data), to.count, static_cast<T>(value));
  };
  to.dtype == Dtype::f32 ? over(float{}) : over(double{});
}

void copy(const Piece& to, const Piece& from) {
  check(to, from);
  if (on_gpu(to)) return cuda::copy(to, from);
  if (to.count > 0) std::memcpy(to.data, from.data, to.bytes());
}

void swap(const Piece& a, const Piece& b) {
  check(a, b);
  if (on_gpu(a)) return cuda::swap(a, b);
  auto* const x = static_cast<std::byte*>(a.data);
  std::swap_ranges(x, x + a.bytes(), static_cast<std::byte*>(b.data));
}

void add(const Piece& to, const Piece& from) {
  check(to, from);
  if (on_gpu(to)) return cuda::add(to, from);
  pass(to, from, [](auto x, auto y) { return x + y; });
}

void subtract(const Piece& to, const Piece& a, const Piece& b) {
  check(to, a);
  check(to, b);
  if (on_gpu(to)) return cuda::subtract(to, a, b);
  const auto over = [&](auto zero) {
    using T = decltype(zero);
    T* const out = static_cast<T*>(to.data);
    const T *const x = static_cast<const T*>(a.data), *const y = static_cast<const T*>(b.data);
    for (std::size_t i = 0; i < to.count; ++i) out[i] = x[i] - y[i];
  };
  to.dtype == Dtype::f32 ? over(float{}) : over(double{});
}

void add_scaled(const Piece& to, double scale, const Piece& from) {
  check(to, from);
  if (on_gpu(to)) return cuda::add_scaled(to, scale, from);
  pass(to, from, [scale](auto x, auto y) { return x + static_cast<decltype(x)>(scale) * y; });
}

void lerp(const Piece& to, double share, const Piece& from) {
  check(to, from);
  if (on_gpu(to)) return cuda::lerp(to, share, from);
  pass(to, from, [share](auto x, auto y) { return x + static_cast<decltype(x)>(share) * (y - x); });
}

void scale(const Piece& to, double by) {
  if (on_gpu(to)) return cuda::scale(to, by);
  pass(to, to, [by](auto x, auto) { return x * static_cast<decltype(x)>(by); });
}

void divide(const Piece& to, const Piece& from, double by) {
  check(to, from);
  if (on_gpu(to)) return cuda::divide(to, from, by);
  pass(to, from, [by](auto, auto y) { return y / static_cast<decltype(y)>(by); });
}

void zero(const Piece& to) {
  if (on_gpu(to)) return cuda::zero(to.data, to.bytes(), to.device);
  if (to.count > 0) std::memset(to.data, 0, to.bytes());
}

bool all_finite(const Piece& values) {
  if (!on_gpu(values)) return optim::all_finite(values.data, values.count, values.dtype);
  optim::GpuMeasure& here = optim::GpuMeasure::of_this_thread(values.device);
  optim::Measure found;
  here.begin();
  here.add(values.data, values.count, values.dtype);
  here.end();
  here.await(found);
  return found.finite;
}

double squared_norm(const Piece& values) {
  check(values, values);
  const auto over = [&](auto zero) {
    const auto* const x = static_cast<const decltype(zero)*>(values.data);
    double sum = 0;
    for (std::size_t i = 0; i < values.count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return sum;
  };
  return values.dtype == Dtype::f32 ? over(float{}) : over(double{});
}

double squared_distance(const Piece& a, const Piece& b) {
  check(a, b);
  const auto over = [&](auto zero) {
    using T = decltype(zero);
    const T *const x = static_cast<const T*>(a.data), *const y = static_cast<const T*>(b.data);
    double sum = 0;
    for (std::size_t i = 0; i < a.count; ++i) {
      const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
      sum += d * d;
    }
    return sum;
  };
  return a.dtype == Dtype::f32 ? over(float{}) : over(double{});
}

}  // namespace cohort::sync
