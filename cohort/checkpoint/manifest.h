// manifest.json: what a checkpoint holds, and how to know that it is whole.
//   {"sha256": "<digest of every byte after this line>",
//    "format": 1, "step": 1200, "epoch": 3, "position": 51200, "world_size": 4, "cohort": "0.1.0", "torch": "2.13.0",
//    "files": [{"name": "model.safetensors", "bytes": 1234, "sha256": ".."}], "texts": {"config": ".."}, "values": {"selector": {..}}}
// It is written last, so that a folder with a manifest is complete; it hashes itself, so that no byte of a checkpoint is unguarded.
// Owner: values. Threads: any. Failure: Kind::corrupt naming the path and the field; Kind::usage for a format newer than ours and for
// what cannot be written. Unknown, missing and doubled fields are refused. To add a field: manifest.cc twice, and kManifestFormat + 1.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::checkpoint {

inline constexpr int kManifestFormat = 1;
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
  std::map<std::string, std::string> texts;  // free: the configuration as YAML, a random state as hex
  std::map<std::string, std::string>
      values;  // free: each a JSON text, comes back without its blanks: the selector's choices, loss scale, sampler

  const ManifestFile* find(std::string_view name) const;
  bool operator==(const Manifest&) const = default;
};

std::string format_manifest(const Manifest& manifest);
Manifest parse_manifest(std::string_view text, std::string_view where);

// Names that are safe inside a checkpoint's folder: letters, digits, '.', '_' and '-', not starting with a dot, not the manifest's own.
bool is_file_name(std::string_view name);

}  // namespace cohort::checkpoint
