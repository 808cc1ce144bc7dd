// manifest.json: what a checkpoint holds, and how to know that it is whole.
//   {"sha256": "<digest of every byte after this line>",
//    "format": 1, "step": 1200, "epoch": 3, "position": 51200, "world_size": 4, "cohort": "0.1.0", "torch": "2.13.0",
//    "files": [{"name": "model.safetensors", "bytes": 1234, "sha256": ".."}], "texts": {"config": ".."}, "values": {"selector": {..}}}
// What several ranks wrote together has format 2 and lists every run of every tensor (piece.h):
//    "pieces": [{"file": "model-00001-of-00004.safetensors", "offset": 192, "tensor": "fc1.weight", "dtype": "F32", "shape": [512, 784],
//                "first": 1024, "count": 1024, "sha256": ".."}, ..]
// Where ranks share tensors out by boxes it has format 3, and such a piece says of which box it is a run:
//    .. "first": 0, "count": 200704, "box": {"first": [256, 0], "sizes": [256, 784]}, "sha256": ".."
// It is written last, so that a folder with a manifest is complete; it hashes itself, so that no byte of a checkpoint is unguarded.
// Owner: values. Threads: any. Failure: Kind::corrupt naming the path and the field; Kind::usage for a format newer than ours and for
// what cannot be written. Unknown, missing and doubled fields are refused, and so are pieces that overlap, leave a gap or do not lie in
// their file. To add a field: manifest.cc twice, and kManifestFormat + 1.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/checkpoint/piece.h"

namespace cohort::checkpoint {

inline constexpr int kManifestFormat = 3;  // without boxes 2 is written, without pieces 1: older readers take them
inline constexpr std::size_t kMostManifestBytes = 64 << 20;
inline constexpr std::string_view kManifestName = "manifest.json";

struct ManifestFile {
  std::string name;  // within the folder
  std::uint64_t bytes = 0;
  std::string sha256;
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  std::int64_t step = 0;      // committed optimizer steps
  std::int64_t epoch = 0;     // of the data
  std::int64_t position = 0;  // samples used of this epoch
  int world_size = 1;
  std::string cohort_version, torch_version;
  std::vector<ManifestFile> files;           // filled in by Store::save
  std::vector<ManifestPiece> pieces;         // likewise; none: each file holds whole tensors, and its header lists them
  std::map<std::string, std::string> texts;  // free: the configuration as YAML, a random state as hex
  std::map<std::string, std::string>
      values;  // free: each a JSON text, comes back without its blanks: the selector's choices, loss scale, sampler

  const ManifestFile* find(std::string_view name) const;
  bool operator==(const Manifest&) const = default;
};

std::string format_manifest(const Manifest& manifest);
// part: of one rank, before the others have said theirs: its tensors need not be whole.
enum class Whole { yes, part };
Manifest parse_manifest(std::string_view text, std::string_view where, Whole whole = Whole::yes);

// Names that are safe inside a checkpoint's folder: letters, digits, '.', '_' and '-', not starting with a dot, not the manifest's own.
bool is_file_name(std::string_view name);

}  // namespace cohort::checkpoint
