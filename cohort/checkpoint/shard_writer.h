// The files of one group being written side by side, from tensors whose bytes come in order. Headers are known beforehand, each tensor's
// bytes are handed to the files that hold its runs, hashed run by run on the way.
// Owner: reshard(). Threads: one. Failure: Kind::system with path and offset; files that were not finished are gone.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cohort/checkpoint/output.h"
#include "cohort/checkpoint/reshard.h"
#include "cohort/checkpoint/sharded_save.h"

namespace cohort::checkpoint {

class ShardWriter {
 public:
  // cuts: by tensor, then element; of one group. One name for each file.
  ShardWriter(const Folder& folder, std::vector<std::string> names, std::vector<Cut> cuts, const Metadata& metadata,
              OutputOptions options = {});
  void take(ConstBytes bytes);  // the next of the tensors' bytes
  Part finish();

 private:
  struct File {
    std::unique_ptr<Output> output;
    std::vector<TensorEntry> entries;
    std::uint64_t header = 0, filled = 0;
  };
  void close_full_cuts();

  const std::vector<std::string> names_;
  const std::vector<Cut> cuts_;
  std::vector<File> files_;
  std::vector<ManifestPiece> pieces_;
  std::size_t now_ = 0;     // the cut being filled
  std::uint64_t done_ = 0;  // bytes of it
  Sha256 hash_;
};

}  // namespace cohort::checkpoint
