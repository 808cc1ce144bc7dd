// A piece is a run of a tensor's elements: what one rank of a sharded job owns and saves. Which tensor it is part of is said in global
// terms (name, whole shape, first element of the tensor laid out flat, row by row), so that no reader needs to know how many ranks wrote,
// or how they had cut it:
//   "fc1.weight[1024:2048]" in model-00001-of-00004.safetensors    elements 1024 .. 2047
// Where ranks share a tensor out by boxes (tensor parallelism), a piece is a run of such a box laid out flat:
//   "fc1.weight[256:512, 0:784]", "fc1.weight[256:512, 0:784][0:1024]"
// A tensor's pieces, put in order, give every element once. Files are told apart by their group, the word before the rank: model,
// optimizer. Owner: values. Threads: any. Failure: assemble() throws Kind::corrupt naming tensor, elements, file and offset.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/shard_spec.h"
#include "cohort/checkpoint/dtype.h"

namespace cohort::checkpoint {

// What a run of elements is part of.
struct PartOf {
  std::string tensor;
  Shape shape;               // of the whole tensor
  std::uint64_t first = 0;   // element, of the box
  std::optional<Box> box{};  // none: the whole tensor
  Box region() const { return box ? *box : whole_box(shape); }
  bool operator==(const PartOf&) const = default;
};

// A piece as the manifest lists it.
struct ManifestPiece {
  std::string file;
  std::uint64_t offset = 0;  // of its first byte in the file
  Dtype dtype = Dtype::f32;
  PartOf of;
  std::uint64_t count = 0;  // elements
  std::string sha256;
  std::uint64_t bytes() const { return count * dtype_bits(dtype) / 8; }
  std::uint64_t end() const { return of.first + count; }  // the element after its last
  std::string name() const;                               // "fc1.weight", "fc1.weight[1024:2048]", ..
  bool operator==(const ManifestPiece&) const = default;
};

// A tensor of a checkpoint and the pieces that make it up, in order.
struct StoredTensor {
  std::string group, name;
  Dtype dtype = Dtype::f32;
  Shape shape;
  std::vector<ManifestPiece> pieces;
  std::uint64_t elements() const { return elements_of(shape); }
  std::uint64_t bytes() const { return elements() * dtype_bits(dtype) / 8; }
  bool in_boxes() const { return !pieces.empty() && pieces.front().of.box.has_value(); }  // else pieces follow each other
};

std::string piece_name(const PartOf& of, std::uint64_t count);        // the whole tensor goes by its own name
std::string shard_file(std::string_view group, int rank, int ranks);  // "model-00001-of-00004.safetensors"
std::string whole_file(std::string_view group);                       // "model.safetensors"
std::string group_of(std::string_view file);                          // "model", of both

inline constexpr std::size_t kMostBoxes = 4096;  // of a tensor: every two are compared

// Tensors by group, then name. `where` is the manifest, for messages. Refuses runs and boxes that overlap, leave a gap or reach beyond
// their tensor, and pieces of one tensor that disagree on its type or shape.
std::vector<StoredTensor> assemble(std::span<const ManifestPiece> pieces, std::string_view where);

}  // namespace cohort::checkpoint
