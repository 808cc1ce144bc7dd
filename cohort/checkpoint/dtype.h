// Element types as safetensors files name them. Wider than what collectives reduce: a file from elsewhere may hold any of these.
// Threads: values, any. Failure: dtype_of_name says nothing for a name it does not know. To add a type: one enumerator and one row in
// dtype.cc.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace cohort::checkpoint {

using Shape = std::vector<std::int64_t>;

enum class Dtype : std::uint8_t {
  boolean,
  u8,
  i8,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  i64,
  u64,
  f64,
  c64,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  f6_e2m3,
  f6_e3m2,
  f4
};

std::string_view dtype_name(Dtype dtype);  // "BF16", "F8_E4M3": as in the file
std::optional<Dtype> dtype_of_name(std::string_view name);
unsigned dtype_bits(Dtype dtype);          // 4 and 6 for the packed types, else a multiple of 8
std::span<const Dtype> all_dtypes();       // in the order above
std::size_t dtype_alignment(Dtype dtype);  // of an element in memory; 1 for the packed types

// Bytes of a tensor of this shape. Empty when a dimension is negative, the count overflows, or packed elements do not fill whole bytes.
std::optional<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::int64_t> shape);
std::uint64_t elements_of(std::span<const std::int64_t> shape);  // of a shape that tensor_bytes takes

}  // namespace cohort::checkpoint
