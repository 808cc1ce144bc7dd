// safetensors files from elsewhere. Whatever the bytes: refused with Kind::corrupt, or tensors fill the data without holes and overlap,
// have the sizes their shapes say, and a header written from them reads back to the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cohort/base/error.h"
#include "cohort/checkpoint/safetensors.h"

namespace {

using namespace cohort;
using namespace cohort::checkpoint;

void check(const SafetensorsIndex& index, std::uint64_t file_bytes) {
  std::uint64_t at = 0;
  for (const TensorEntry& tensor : index.tensors) {
    if (tensor.begin != at || tensor_bytes(tensor.dtype, tensor.shape) != tensor.bytes()) std::abort();
    at = tensor.end;
  }
  if (index.data_start + at != file_bytes) std::abort();
  const auto header = format_header(index.tensors, index.metadata);
  const auto again = parse_header(std::string_view(header).substr(8), header.size() + at, "again");
  if (again.tensors != index.tensors || again.metadata != index.metadata || again.data_start % 64 != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ConstBytes file = std::as_bytes(std::span(data, size));
  try {
    const auto header = header_bytes_of(file.first(std::min<std::size_t>(8, size)), size, "input");
    check(parse_header({reinterpret_cast<const char*>(data) + 8, header}, size, "input"), size);
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::corrupt) std::abort();
  }
  return 0;
}
