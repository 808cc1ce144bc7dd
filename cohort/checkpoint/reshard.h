// A checkpoint written anew for another number of ranks or another ZeRO stage, or as one plain file, without torch and without holding it.
//   stage 0     model.safetensors, optimizer.safetensors                     everything in one file of its group
//   stage 1, 2  model.safetensors, optimizer-RRRRR-of-NNNNN.safetensors      optimizer state cut into one file a rank
//   stage 3     model-RRRRR-of-NNNNN.safetensors, optimizer-..               both
// Cut like the engine's buckets are: a group's tensors one after the other, each from a fresh block of 256 elements on, an equal run of
// blocks for every rank. The engine loads any cut (contents.h), so that this is about equal files and not about what may be loaded.
// Tensor by tensor every piece is read, compared with its digest and handed on to the files it belongs to, then every file is compared with
// its own: memory is about 1 MiB for each file being written, whatever the checkpoint's size. Boxes of a mesh are put together on the way.
// Nothing gets its name before all of it is right and on disk.
// Owner: values. Threads: one. Failure: Kind::corrupt naming piece, file, offset and expected digest; Kind::usage (something is there
// already); Kind::system (a full disk names path and offset). Nothing is left of an attempt that failed.
#pragma once
#include <functional>
#include <string>

#include "cohort/checkpoint/contents.h"

namespace cohort::checkpoint {

inline constexpr std::uint64_t kCutBlock = 256;  // elements
inline constexpr int kMostReshardRanks = 900;    // their files are open at once, and a process may have 1024
inline constexpr std::string_view kModelGroup = "model", kOptimizerGroup = "optimizer";

struct Layout {
  int ranks = 1;
  int stage = 0;
};

// A run of a tensor and the file it goes to.
struct Cut {
  const StoredTensor* tensor = nullptr;
  std::uint64_t first = 0, count = 0;
  std::size_t file = 0;  // of the group: its rank
};
// The tensors of one group, in the order of their files. Every element once; an empty tensor is one empty cut.
std::vector<Cut> plan_cuts(std::span<const StoredTensor* const> tensors, std::size_t files);

struct ReshardResult {
  std::string path;
  std::size_t files = 0, tensors = 0, pieces = 0;
  std::uint64_t bytes = 0;  // of the tensors
};
using Progress = std::function<void(std::uint64_t done, std::uint64_t of)>;  // bytes; may throw to stop

// A checkpoint's folder (step-00001200), or a run's, or its `checkpoints`: then the newest there. Its manifest is checked, its tensors are
// when they are read.
Checkpoint open_checkpoint(const std::string& path);

// Into `to` if that is called step-00001200 as it must be, else into a new folder of that name in it.
ReshardResult reshard(const Checkpoint& from, const std::string& to, const Layout& layout, const Progress& progress = {});
// One safetensors file of the model's tensors; optimizer: and of its state, as "<parameter>/<state>".
ReshardResult consolidate(const Checkpoint& from, const std::string& file, bool optimizer, const Progress& progress = {});

}  // namespace cohort::checkpoint
