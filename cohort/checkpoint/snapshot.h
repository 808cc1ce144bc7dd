// A checkpoint in memory: copies of the tensors at one step, so that training goes on while they travel to the disk.
//   Snapshot s = writer.begin();                                     // memory of an earlier one, warm
//   s.add("model.safetensors", {name, dtype, shape, bytes});         // a copy now
//   Bytes memory = s.place("optimizer.safetensors", name, dtype, shape);  // or memory to copy into, from a device for instance
//   s.manifest.step = step;
// Owner: values, movable. Threads: one at a time; several may fill memory placed before. Failure: Kind::usage for shapes that cannot be,
// std::bad_alloc.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/checkpoint/store.h"

namespace cohort::checkpoint {

class Snapshot {
 public:
  Manifest manifest;

  void reserve(std::size_t bytes);                                                 // one piece of memory for all: optional
  Bytes place(std::string_view file, std::string name, Dtype dtype, Shape shape);  // 64-byte aligned, valid until clear()
  void add(std::string_view file, const TensorView& tensor);                       // place and copy
  void set_metadata(std::string_view file, Metadata metadata);
  const std::vector<TensorFile>& files() const { return files_; }
  std::size_t bytes() const { return bytes_; }  // of the tensors placed
  std::size_t capacity() const;                 // memory held, used or not
  void clear();                                 // as new, but keeps the memory

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  struct Chunk {
    std::unique_ptr<std::byte, Free> memory;
    std::size_t size = 0, used = 0;
  };
  TensorFile& file(std::string_view name);
  Chunk& chunk_with(std::size_t bytes);

  std::vector<TensorFile> files_;
  std::vector<Chunk> chunks_;
  std::size_t bytes_ = 0;
};

}  // namespace cohort::checkpoint
