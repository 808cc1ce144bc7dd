// CIFAR-10 files come from anywhere. Whatever the bytes: Kind::corrupt, or records that cover the file and have labels 0 to 9.
#include <cstddef>
#include <cstdint>

#include "cohort/base/error.h"
#include "cohort/data/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto records = cohort::data::parse_cifar({reinterpret_cast<const char*>(data), size}, "input");
    std::size_t seen = 0;
    for (std::size_t i = 0; i < records.count(); ++i) {
      if (records.label(i) > 9) __builtin_trap();
      seen += 1 + records.pixels(i).size();
    }
    if (seen != size) __builtin_trap();
  } catch (const cohort::Failure& failure) {
    if (failure.kind() != cohort::Kind::corrupt) __builtin_trap();
  }
  return 0;
}
