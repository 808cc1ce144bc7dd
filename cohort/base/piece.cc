#include "cohort/base/piece.h"

#include <array>

namespace cohort {
namespace {

struct DtypeRow {
  std::string_view name;
  std::size_t bytes;
};
// In the order of the enumerators.
constexpr std::array<DtypeRow, kDtypes> kDtypeRows{
    {{"f16", 2}, {"bf16", 2}, {"f32", 4}, {"f64", 8}, {"i8", 1}, {"u8", 1}, {"i32", 4}, {"i64", 8}, {"bool", 1}, {"i16", 2}}};

}  // namespace

// Values that came over a wire may lie outside the table: they have no name, and print as such.
std::size_t size_of(Dtype dtype) {
  const auto i = static_cast<std::size_t>(dtype);
  return i < kDtypeRows.size() ? kDtypeRows[i].bytes : 0;
}

std::string_view name_of(Dtype dtype) {
  const auto i = static_cast<std::size_t>(dtype);
  return i < kDtypeRows.size() ? kDtypeRows[i].name : "unknown";
}

std::optional<Dtype> dtype_named(std::string_view name) {
  for (std::size_t i = 0; i < kDtypeRows.size(); ++i)
    if (kDtypeRows[i].name == name) return static_cast<Dtype>(i);
  return std::nullopt;
}

}  // namespace cohort
