#include "cohort/sync/elements.h"

#include <algorithm>
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/optim/measure.h"

namespace cohort::sync {
namespace {

void check(const Piece& a) {
  if (a.device.kind != DeviceKind::cpu) throw_failure(Kind::bug, "{} elements of a GPU in a pass over memory of the CPU", a.count);
}

void check(const Piece& a, const Piece& b) {
  check(a);
  check(b);
  if (a.count != b.count || a.dtype != b.dtype)
    throw_failure(Kind::bug, "{} {} elements meet {} of {}", a.count, name_of(a.dtype), b.count, name_of(b.dtype));
}

// call(x, y): the new value of x.
template <class Call>
void pass(const Piece& to, const Piece& from, const Call& call) {
  check(to, from);
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
  check(to);
  const auto over = [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(static_cast<T*>(to.data), to.count, static_cast<T>(value));
  };
  to.dtype == Dtype::f32 ? over(float{}) : over(double{});
}

void copy(const Piece& to, const Piece& from) {
  check(to, from);
  if (to.count > 0) std::memcpy(to.data, from.data, to.bytes());
}

void swap(const Piece& a, const Piece& b) {
  check(a, b);
  auto* const x = static_cast<std::byte*>(a.data);
  std::swap_ranges(x, x + a.bytes(), static_cast<std::byte*>(b.data));
}

void add(const Piece& to, const Piece& from) {
  pass(to, from, [](auto x, auto y) { return x + y; });
}

void subtract(const Piece& to, const Piece& a, const Piece& b) {
  check(to, a);
  check(to, b);
  const auto over = [&](auto zero) {
    using T = decltype(zero);
    T* const out = static_cast<T*>(to.data);
    const T *const x = static_cast<const T*>(a.data), *const y = static_cast<const T*>(b.data);
    for (std::size_t i = 0; i < to.count; ++i) out[i] = x[i] - y[i];
  };
  to.dtype == Dtype::f32 ? over(float{}) : over(double{});
}

void add_scaled(const Piece& to, double scale, const Piece& from) {
  pass(to, from, [scale](auto x, auto y) { return x + static_cast<decltype(x)>(scale) * y; });
}

void lerp(const Piece& to, double share, const Piece& from) {
  pass(to, from, [share](auto x, auto y) { return x + static_cast<decltype(x)>(share) * (y - x); });
}

void scale(const Piece& to, double by) {
  pass(to, to, [by](auto x, auto) { return x * static_cast<decltype(x)>(by); });
}

void divide(const Piece& to, const Piece& from, double by) {
  pass(to, from, [by](auto, auto y) { return y / static_cast<decltype(y)>(by); });
}

bool all_finite(const Piece& values) { return optim::all_finite(values.data, values.count, values.dtype); }

}  // namespace cohort::sync
