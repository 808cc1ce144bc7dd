// What every layer says of elements in memory: their type (Dtype), where they lie (Device), a run of them (Piece), places in a longer run
// (ElementRange), a tensor's dimensions (Shape).
// Threads: values, any. Failure: none; an enumerator outside the table has no name and no size. To add a type: one enumerator, its row in
// piece.cc, and a loop in collective/kernels/kernels.inc.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace cohort {

enum class Dtype : std::uint8_t { f16, bf16, f32, f64, i8, u8, i32, i64, boolean, i16 };
inline constexpr int kDtypes = 10;
std::size_t size_of(Dtype dtype);
std::string_view name_of(Dtype dtype);  // "f32"; boolean is "bool"
std::optional<Dtype> dtype_named(std::string_view name);

enum class DeviceKind : std::uint8_t { cpu, cuda };

// As torch's: index -1 is the current device of its kind.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  std::int8_t index = -1;
  bool operator==(const Device&) const = default;
  static const Device cpu, cuda;
};
inline constexpr Device Device::cpu{DeviceKind::cpu};
inline constexpr Device Device::cuda{DeviceKind::cuda};

// Elements in memory. Borrowed until the call that takes it returns (or, asynchronously, until its handle was waited for).
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

// The elements [first, first + count) of a longer run. (Range is a setting's, config.h.)
struct ElementRange {
  std::size_t first = 0, count = 0;
  std::size_t last() const { return first + count; }
  ElementRange overlap(const ElementRange& other) const {
    const std::size_t from = std::max(first, other.first), to = std::min(last(), other.last());
    return {from, to > from ? to - from : 0};
  }
  bool operator==(const ElementRange&) const = default;
};

using Shape = std::vector<std::int64_t>;  // of a tensor

}  // namespace cohort
