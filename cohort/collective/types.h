// The nouns of a collective: what is moved (Piece), how it is combined (Op), and how the caller wants it done (Call).
// Threads: values, any. To add a type: one enumerator, its row in dtype_rows(), and a loop in kernels.inc.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cohort/base/deadline.h"

namespace cohort::collective {

enum class Dtype : std::uint8_t { f16, bf16, f32, f64, i8, u8, i32, i64, boolean, i16 };
inline constexpr int kDtypes = 10;
enum class Op : std::uint8_t { sum, average, min, max, product };
inline constexpr int kOps = 5;
enum class Collective : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  barrier,
  split,
  send,
  recv
};
inline constexpr int kCollectives = 12;
enum class Device : std::uint8_t { cpu, cuda };

std::size_t size_of(Dtype dtype);
std::string_view name_of(Dtype dtype);  // "f32"; boolean is "bool"
std::string_view name_of(Op op);
std::string_view name_of(Collective collective);
std::optional<Dtype> dtype_named(std::string_view name);
std::optional<Op> op_named(std::string_view name);
std::optional<Collective> collective_named(std::string_view name);
// bool knows sum and max (or), product and min (and), not average.
bool reducible(Dtype dtype, Op op);

// Elements in memory. Borrowed until the collective returns (or, asynchronously, until its handle was waited for).
struct Piece {
  void* data = nullptr;
  std::size_t count = 0;
  Dtype dtype = Dtype::f32;
  Device device = Device::cpu;

  std::size_t bytes() const { return count * size_of(dtype); }
  Piece part(std::size_t first, std::size_t length) const {
    return {static_cast<std::byte*>(data) + first * size_of(dtype), length, dtype, device};
  }
};

template <class T>
inline constexpr Dtype kDtypeOf = Dtype::boolean;
template <>
inline constexpr Dtype kDtypeOf<float> = Dtype::f32;
template <>
inline constexpr Dtype kDtypeOf<double> = Dtype::f64;
template <>
inline constexpr Dtype kDtypeOf<std::int8_t> = Dtype::i8;
template <>
inline constexpr Dtype kDtypeOf<std::uint8_t> = Dtype::u8;
template <>
inline constexpr Dtype kDtypeOf<std::int16_t> = Dtype::i16;
template <>
inline constexpr Dtype kDtypeOf<std::int32_t> = Dtype::i32;
template <>
inline constexpr Dtype kDtypeOf<std::int64_t> = Dtype::i64;

// Piece of a vector or span of float, double, int8_t .. int64_t, bool.
template <class T>
Piece piece(std::span<T> values) {
  return {const_cast<void*>(static_cast<const void*>(values.data())), values.size(), kDtypeOf<std::remove_const_t<T>>, Device::cpu};
}

// How the caller wants one operation done. The name is what errors and traces show.
struct Call {
  std::string_view name{};
  std::optional<Deadline> deadline{};  // none: the communicator's own timeout, from the moment of the call
  double prescale = 1.0;               // every input element is multiplied by it before the reduction, rounded to its type
  double postscale = 1.0;              // and the result afterwards
  std::string_view algorithm{};        // a row's name; empty: the selector chooses
  void* stream = nullptr;              // CUDA only
};

}  // namespace cohort::collective
