// The arithmetic of kernels.h written a second time for its tests: one element at a time, on bits, sharing no code with the kernels.
// Threads: pure functions, any.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "cohort/collective/types.h"

namespace cohort::collective::reference {

using Bits = std::uint64_t;  // an element's bytes, zero-extended

struct Format {  // of a real number: sign, exponent, mantissa
  int bits, mantissa;
  Bits sign() const { return Bits{1} << (bits - 1); }
  Bits exponent() const { return (sign() - 1) & ~((Bits{1} << mantissa) - 1); }  // of infinity
  Bits quiet() const { return Bits{1} << (mantissa - 1); }
  Bits indefinite() const { return sign() | exponent() | quiet(); }
  int bias() const { return (1 << (bits - mantissa - 2)) - 1; }
  bool nan(Bits x) const { return (x & (sign() - 1)) > exponent(); }
};

inline Format format_of(Dtype dtype) {
  if (dtype == Dtype::f16) return {16, 10};
  if (dtype == Dtype::bf16) return {16, 7};
  return dtype == Dtype::f32 ? Format{32, 23} : Format{64, 52};
}

inline double decode(Format f, Bits x) {  // no NaN
  const double sign = (x & f.sign()) != 0 ? -1.0 : 1.0;
  const Bits magnitude = x & (f.sign() - 1);
  if (magnitude == f.exponent()) return sign * std::numeric_limits<double>::infinity();
  const auto exponent = static_cast<int>(magnitude >> f.mantissa);
  const auto mantissa = static_cast<double>(magnitude & ((Bits{1} << f.mantissa) - 1));
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - f.bias() - f.mantissa);
  return sign * std::ldexp(mantissa + std::ldexp(1.0, f.mantissa), exponent - f.bias() - f.mantissa);
}

// To nearest, ties to even: in units of the last place the number is rounded by the processor's own nearbyint.
inline Bits encode(Format f, double value) {
  if (value != value) return f.indefinite();
  const Bits sign = std::signbit(value) ? f.sign() : 0;
  if (std::isinf(value)) return sign | f.exponent();
  if (value == 0) return sign;
  int exponent = 0;
  std::frexp(value, &exponent);                             // |value| in [2^(exponent-1), 2^exponent)
  const int lowest = std::max(exponent - 1, 1 - f.bias());  // subnormals share the smallest exponent
  const double units = std::nearbyint(std::ldexp(std::fabs(value), f.mantissa - lowest));
  const auto biased = static_cast<Bits>(lowest + f.bias() - 1);  // the implicit bit adds one more
  const Bits magnitude = (biased << f.mantissa) + static_cast<Bits>(units);
  return sign | std::min(magnitude, f.exponent());
}

inline Bits combine_reals(Dtype dtype, Op op, Bits a, Bits b) {
  const Format f = format_of(dtype);
  if (f.nan(a)) return a | f.quiet();
  if (f.nan(b)) return b | f.quiet();
  const double x = decode(f, a), y = decode(f, b);
  if (op == Op::min) return y < x ? b : a;
  if (op == Op::max) return x < y ? b : a;
  if (dtype == Dtype::f64) return encode(f, op == Op::sum ? x + y : x * y);
  const auto u = static_cast<float>(x), v = static_cast<float>(y);
  return encode(f, op == Op::sum ? u + v : u * v);
}

inline std::int64_t as_signed(Dtype dtype, Bits x) {
  if (dtype == Dtype::i8) return static_cast<std::int8_t>(x);
  if (dtype == Dtype::i16) return static_cast<std::int16_t>(x);
  if (dtype == Dtype::i32) return static_cast<std::int32_t>(x);
  return static_cast<std::int64_t>(x);  // i64, and u8, which is never negative here
}

inline Bits combine(Dtype dtype, Op op, Bits a, Bits b) {
  if (dtype <= Dtype::f64) return combine_reals(dtype, op, a, b);
  if (dtype == Dtype::boolean) return op == Op::sum || op == Op::max ? (a != 0 || b != 0) : (a != 0 && b != 0);
  const Bits mask = ~Bits{0} >> (64 - 8 * size_of(dtype));
  if (op == Op::sum) return (a + b) & mask;
  if (op == Op::product) return (a * b) & mask;
  const bool right_is_less = as_signed(dtype, b) < as_signed(dtype, a);
  return right_is_less == (op == Op::min) ? b : a;
}

// Integers: the first of least, 0 (for NaN), most that applies, else truncation.
inline Bits scale(Dtype dtype, Bits x, double factor) {
  if (factor == 1.0 || dtype == Dtype::boolean) return x;
  if (dtype <= Dtype::f64) {
    const Format f = format_of(dtype);
    if (f.nan(x)) return x | f.quiet();
    if (dtype == Dtype::f64) return encode(f, decode(f, x) * factor);
    if (dtype == Dtype::f32) return encode(f, static_cast<float>(decode(f, x) * factor));
    return encode(f, static_cast<float>(decode(f, x)) * static_cast<float>(factor));
  }
  const double value = std::trunc(static_cast<double>(as_signed(dtype, x)) * factor);
  const int bits = static_cast<int>(8 * size_of(dtype));
  const double most = dtype == Dtype::u8 ? 256.0 : std::ldexp(1.0, bits - 1), least = dtype == Dtype::u8 ? 0.0 : -most;
  const Bits mask = ~Bits{0} >> (64 - bits);
  if (value != value) return 0;
  if (value >= most) return dtype == Dtype::u8 ? 255 : mask >> 1;
  if (value < least) return dtype == Dtype::u8 ? 0 : Bits{1} << (bits - 1);
  return static_cast<Bits>(static_cast<std::int64_t>(value)) & mask;
}

inline Bits bracket(Dtype dtype, Op op, std::span<const Bits> x) {
  if (x.size() == 1) return x[0];
  const std::size_t left = std::bit_floor(x.size() - 1);
  return combine(dtype, op, bracket(dtype, op, x.first(left)), bracket(dtype, op, x.subspan(left)));
}

inline Bits reduce(Dtype dtype, Op op, double pre, double post, std::vector<Bits> x) {
  for (Bits& each : x) each = scale(dtype, each, pre);
  if (x.size() == 1 && dtype == Dtype::boolean) return x[0] != 0;
  return scale(dtype, bracket(dtype, op, x), post);
}

inline Bits get(Dtype dtype, const void* from, std::size_t i) {
  Bits x = 0;
  std::memcpy(&x, static_cast<const char*>(from) + i * size_of(dtype), size_of(dtype));
  return x;
}
inline void put(Dtype dtype, void* to, std::size_t i, Bits x) {
  std::memcpy(static_cast<char*>(to) + i * size_of(dtype), &x, size_of(dtype));
}

}  // namespace cohort::collective::reference
