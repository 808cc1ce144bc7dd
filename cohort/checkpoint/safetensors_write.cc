#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/safetensors.h"

namespace cohort::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors bytes are little-endian and are written as they lie in memory");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kDataAlignment = 64;  // a cache line and the widest vector: a mapped file can be computed on

void check_tensor(const TensorView& tensor, std::string_view where) {
  const auto refuse = [&](const std::string& why) {
    throw_failure(Kind::usage, "{}: tensor '{}' cannot be written: {}", where, printable(tensor.name), why);
  };
  if (tensor.name == "__metadata__") refuse("the format keeps this name for itself");
  if (tensor.shape.size() > kMostDimensions) refuse(fmt::format("{} dimensions, at most {}", tensor.shape.size(), kMostDimensions));
  const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (!bytes) refuse(fmt::format("{} of shape [{}] is no whole number of bytes", dtype_name(tensor.dtype), fmt::join(tensor.shape, ", ")));
  if (*bytes != tensor.data.size())
    refuse(fmt::format("{} of shape [{}] has {} bytes, {} were given", dtype_name(tensor.dtype), fmt::join(tensor.shape, ", "), *bytes,
                       tensor.data.size()));
}

std::vector<const TensorView*> in_file_order(std::span<const TensorView> tensors, std::string_view where) {
  std::vector<const TensorView*> order;
  std::set<std::string_view> names;
  for (const TensorView& tensor : tensors) {
    check_tensor(tensor, where);
    if (!names.insert(tensor.name).second) throw_failure(Kind::usage, "{}: two tensors are called '{}'", where, printable(tensor.name));
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    const auto of_a = dtype_alignment(a->dtype), of_b = dtype_alignment(b->dtype);
    return of_a != of_b ? of_a > of_b : a->name < b->name;
  });
  return order;
}

std::string quoted(std::string_view text, std::string_view what) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw_failure(Kind::usage, "safetensors: {} '{}' is no UTF-8", what, printable(text));
  }
}

}  // namespace

std::string format_header(std::span<const TensorEntry> tensors, const Metadata& metadata) {
  std::vector<std::string> members;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, text] : metadata) pairs.push_back(fmt::format("{}:{}", quoted(key, "metadata key"), quoted(text, "metadata")));
    members.push_back(fmt::format("\"__metadata__\":{{{}}}", fmt::join(pairs, ",")));
  }
  for (const TensorEntry& t : tensors)
    members.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", quoted(t.name, "tensor name"),
                                  dtype_name(t.dtype), fmt::join(t.shape, ","), t.begin, t.end));
  std::string json = fmt::format("{{{}}}", fmt::join(members, ","));
  json.resize(round_up(kLengthBytes + json.size(), kDataAlignment) - kLengthBytes, ' ');
  if (json.size() > kMostHeaderBytes)
    throw_failure(Kind::usage, "safetensors: the header of {} tensors would have {} bytes, the format allows {}; write several files",
                  tensors.size(), json.size(), kMostHeaderBytes);
  const std::uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + json;
}

Written write_safetensors(const FileAt& file, std::span<const TensorView> tensors, const Metadata& metadata, OutputOptions options,
                          std::vector<WrittenTensor>* each) {
  const auto order = in_file_order(tensors, file.path);
  std::vector<TensorEntry> entries;
  std::uint64_t at = 0;
  for (const TensorView* tensor : order) {
    entries.push_back({tensor->name, tensor->dtype, tensor->shape, at, at + tensor->data.size()});
    at += tensor->data.size();
  }
  const auto header = format_header(entries, metadata);
  Output output(file, options);
  output.write(std::as_bytes(std::span(header)));
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (each != nullptr) each->push_back({order[i], header.size() + entries[i].begin, sha256_hex(order[i]->data)});
    output.write(order[i]->data);
  }
  return output.finish();
}

}  // namespace cohort::checkpoint
