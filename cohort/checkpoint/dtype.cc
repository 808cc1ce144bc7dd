#include "cohort/checkpoint/dtype.h"

#include <array>

#include "cohort/base/error.h"

namespace cohort::checkpoint {
namespace {

struct Row {
  Dtype dtype;
  std::string_view name;
  unsigned bits;
};
constexpr std::array kRows{
    Row{Dtype::boolean, "BOOL", 8},    Row{Dtype::u8, "U8", 8},           Row{Dtype::i8, "I8", 8},
    Row{Dtype::i16, "I16", 16},        Row{Dtype::u16, "U16", 16},        Row{Dtype::f16, "F16", 16},
    Row{Dtype::bf16, "BF16", 16},      Row{Dtype::i32, "I32", 32},        Row{Dtype::u32, "U32", 32},
    Row{Dtype::f32, "F32", 32},        Row{Dtype::i64, "I64", 64},        Row{Dtype::u64, "U64", 64},
    Row{Dtype::f64, "F64", 64},        Row{Dtype::c64, "C64", 64},        Row{Dtype::f8_e4m3, "F8_E4M3", 8},
    Row{Dtype::f8_e5m2, "F8_E5M2", 8}, Row{Dtype::f8_e8m0, "F8_E8M0", 8}, Row{Dtype::f6_e2m3, "F6_E2M3", 6},
    Row{Dtype::f6_e3m2, "F6_E3M2", 6}, Row{Dtype::f4, "F4", 4},
};

constexpr auto kDtypes = [] {
  std::array<Dtype, kRows.size()> dtypes{};
  for (std::size_t i = 0; i < kRows.size(); ++i) dtypes[i] = kRows[i].dtype;
  return dtypes;
}();

const Row& row(Dtype dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  if (index >= kRows.size()) throw_failure(Kind::bug, "checkpoint: {} is no Dtype", index);
  return kRows[index];
}

}  // namespace

std::string_view dtype_name(Dtype dtype) { return row(dtype).name; }
unsigned dtype_bits(Dtype dtype) { return row(dtype).bits; }
std::span<const Dtype> all_dtypes() { return kDtypes; }
std::size_t dtype_alignment(Dtype dtype) { return dtype_bits(dtype) < 8 ? 1 : dtype_bits(dtype) / 8; }

std::optional<Dtype> dtype_of_name(std::string_view name) {
  for (const Row& r : kRows)
    if (r.name == name) return r.dtype;
  return std::nullopt;
}

std::optional<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::int64_t> shape) {
  std::uint64_t bits = dtype_bits(dtype);
  for (const std::int64_t n : shape)  // overflow counts also where a later dimension is 0: other readers refuse it too
    if (n < 0 || __builtin_mul_overflow(bits, static_cast<std::uint64_t>(n), &bits)) return std::nullopt;
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

std::uint64_t elements_of(std::span<const std::int64_t> shape) {
  std::uint64_t count = 1;
  for (const std::int64_t n : shape) count *= static_cast<std::uint64_t>(n);
  return count;
}

}  // namespace cohort::checkpoint
