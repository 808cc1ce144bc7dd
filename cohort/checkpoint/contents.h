// The tensors of a checkpoint, whatever its layout: one file for each group, or pieces that any number of ranks wrote. This is how a job of
// N ranks at one stage takes up what M ranks at another left: each rank asks for the elements it needs, and only those are read.
//   const Contents contents(checkpoint);
//   contents.read(contents.at("optimizer", "fc1.weight/momentum"), first, count, into);
//   contents.read(contents.at("model", "fc1.weight"), {{256, 0}, {256, 784}}, first, count, into);   // of a box of it
// A piece that is read from end to end is compared with its digest on the way; Store::verify compares all of them.
// Owner: the caller. Threads: reading any. Failure: Kind::corrupt naming piece, file, offset and both digests; Kind::usage with the nearest
// name.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cohort/checkpoint/store.h"

namespace cohort::checkpoint {

class Contents {
 public:
  explicit Contents(Checkpoint checkpoint);
  const Checkpoint& checkpoint() const { return checkpoint_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // by group, then name
  std::vector<std::string> groups() const;
  Metadata metadata(std::string_view group) const;  // of its first file

  const StoredTensor* find(std::string_view group, std::string_view name) const;  // nullptr when there is none
  const StoredTensor& at(std::string_view group, std::string_view name) const;
  void read(const StoredTensor& tensor, std::uint64_t first, std::uint64_t count, Bytes into) const;
  // Elements of a box of it, laid out flat.
  void read(const StoredTensor& tensor, const Box& box, std::uint64_t first, std::uint64_t count, Bytes into) const;

 private:
  const Checkpoint checkpoint_;
  std::vector<StoredTensor> tensors_;
};

// The bytes of a piece in order, at most 1 MiB at a time, borrowed during the call. Throws behind the last one when the digest is another.
// A piece without a digest (of a file that has its own) is not compared.
using ByteSink = std::function<void(ConstBytes)>;
void read_piece(const std::string& folder, const ManifestPiece& piece, const ByteSink& take);

}  // namespace cohort::checkpoint
