#include "cohort/checkpoint/snapshot.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "cohort/base/text.h"

namespace cohort::checkpoint {
namespace {

constexpr std::size_t kHugePage = 2_MiB;
constexpr std::size_t kChunkBytes = 32_MiB;  // small tensors share chunks; a larger one gets its own

}  // namespace

void Snapshot::Free::operator()(std::byte* memory) const { std::free(memory); }

Snapshot::Chunk& Snapshot::chunk_with(std::size_t bytes) {
  for (Chunk& chunk : chunks_)
    if (chunk.size - chunk.used >= bytes) return chunk;
  const auto size = round_up(std::max(bytes, kChunkBytes), kHugePage);
  auto* chunk_memory = static_cast<std::byte*>(std::aligned_alloc(kHugePage, size));
  if (chunk_memory == nullptr) throw std::bad_alloc();
  Chunk chunk{std::unique_ptr<std::byte, Free>(chunk_memory), size, 0};
  ::madvise(chunk_memory, size, MADV_HUGEPAGE);  // a hint: the first copy meets 512 times fewer page faults
  return chunks_.emplace_back(std::move(chunk));
}

void Snapshot::reserve(std::size_t bytes) { chunk_with(bytes); }

TensorFile& Snapshot::file(std::string_view name) {
  for (TensorFile& f : files_)
    if (f.name == name) return f;
  return files_.emplace_back(TensorFile{std::string(name), {}});
}

Bytes Snapshot::place(std::string_view file_name, std::string name, Dtype dtype, Shape shape) {
  const auto bytes = tensor_bytes(dtype, shape);
  if (!bytes)
    throw_failure(Kind::usage, "snapshot: tensor '{}', {} of shape [{}], is no whole number of bytes", printable(name), dtype_name(dtype),
                  fmt::join(shape, ", "));
  Chunk& chunk = chunk_with(round_up(*bytes, kCacheLine));
  const Bytes memory(chunk.memory.get() + chunk.used, *bytes);
  chunk.used += round_up(*bytes, kCacheLine);
  bytes_ += *bytes;
  file(file_name).tensors.push_back({std::move(name), dtype, std::move(shape), memory});
  return memory;
}

void Snapshot::add(std::string_view file_name, const TensorView& tensor) {
  const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (bytes && *bytes != tensor.data.size())
    throw_failure(Kind::usage, "snapshot: tensor '{}' has {} bytes by its shape, {} were given", printable(tensor.name), *bytes,
                  tensor.data.size());
  const Bytes memory = place(file_name, tensor.name, tensor.dtype, tensor.shape);
  file(file_name).tensors.back().of = tensor.of;
  if (!memory.empty()) std::memcpy(memory.data(), tensor.data.data(), memory.size());
}

void Snapshot::set_metadata(std::string_view file_name, Metadata metadata) { file(file_name).metadata = std::move(metadata); }

std::size_t Snapshot::capacity() const {
  std::size_t bytes = 0;
  for (const Chunk& chunk : chunks_) bytes += chunk.size;
  return bytes;
}

void Snapshot::clear() {
  manifest = {};
  files_.clear();
  bytes_ = 0;
  for (Chunk& chunk : chunks_) chunk.used = 0;
}

}  // namespace cohort::checkpoint
