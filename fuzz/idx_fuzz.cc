// IDX files come from anywhere. Whatever the bytes: Kind::corrupt, or an array whose body is exactly the product of its sizes and lies
// inside the file. Plain first; then the same bytes as gzip, bounded in memory.
#include <cstddef>
#include <cstdint>

#include "cohort/base/error.h"
#include "cohort/data/formats.h"
#include "cohort/data/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file{reinterpret_cast<const char*>(data), size};
  try {
    const auto array = cohort::data::parse_idx(file, "input");
    std::size_t elements = 1;
    for (const std::int64_t n : array.sizes) elements *= static_cast<std::size_t>(n);
    if (array.sizes.empty() || array.body.size() != elements || array.body.size() >= size) __builtin_trap();
  } catch (const cohort::Failure& failure) {
    if (failure.kind() != cohort::Kind::corrupt) __builtin_trap();
  }
  constexpr std::size_t kMost = 1 << 20;
  try {
    if (cohort::data::inflate_gzip(file, "input", kMost).size() > kMost) __builtin_trap();
  } catch (const cohort::Failure& failure) {
    if (failure.kind() != cohort::Kind::corrupt && failure.kind() != cohort::Kind::usage) __builtin_trap();
  }
  return 0;
}
