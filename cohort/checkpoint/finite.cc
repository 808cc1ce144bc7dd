#include "cohort/checkpoint/finite.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace cohort::checkpoint {
namespace {

constexpr std::size_t kBlockBytes = 1_MiB;  // stays in L2 between read and check

// inf and nan are the values whose exponent has every bit set.
template <class Bits>
bool none_has(Bits exponent, ConstBytes values) {
  bool found = false;  // no early end: the loop is vectorised
  for (std::size_t at = 0; at + sizeof(Bits) <= values.size(); at += sizeof(Bits)) {
    Bits bits = 0;
    std::memcpy(&bits, values.data() + at, sizeof bits);
    found |= (bits & exponent) == exponent;
  }
  return !found;
}

}  // namespace

bool all_finite(Dtype dtype, ConstBytes values) {
  switch (dtype) {
    case Dtype::f16: return none_has<std::uint16_t>(0x7c00, values);
    case Dtype::bf16: return none_has<std::uint16_t>(0x7f80, values);
    case Dtype::f32: return none_has<std::uint32_t>(0x7f800000, values);
    case Dtype::f64: return none_has<std::uint64_t>(0x7ff0000000000000, values);
    default: return true;
  }
}

std::optional<std::string> first_not_finite(const Contents& contents, std::string_view group, const std::set<std::string>& names) {
  std::vector<std::byte> block(kBlockBytes);
  for (const StoredTensor& tensor : contents.tensors()) {
    const unsigned bits = dtype_bits(tensor.dtype);
    if (tensor.group != group || !names.contains(tensor.name) || bits < 16) continue;
    const std::uint64_t each = kBlockBytes * 8 / bits;
    for (std::uint64_t first = 0; first < tensor.elements(); first += each) {
      const std::uint64_t count = std::min(each, tensor.elements() - first);
      const std::span values = std::span(block).first(count * bits / 8);
      contents.read(tensor, first, count, values);
      if (!all_finite(tensor.dtype, values)) return tensor.name;
    }
  }
  return std::nullopt;
}

}  // namespace cohort::checkpoint
