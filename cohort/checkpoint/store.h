// A run's checkpoints on disk: folders step-00001200/ with the tensors' files and a manifest.
//   save:   .tmp-<step>-<pid>/ | each file written, hashed, fsynced | manifest last | fsync of the folder | read back | rename
//           | fsync of the parent | only then older ones go, down to `keep`
//   newest: the newest whose manifest and digests hold. One that does not is named in the log and in the answer, and the one before serves.
// At every instant, power cuts included, a folder called step-* is complete or was damaged after it was written; what save() returned for
// survives. A failed save leaves the older checkpoints and no temporary. A folder that was removed is made again by the next save.
// Owner: values, copies are cheap. Threads: reading any; saving or preparing one at a time per folder. A folder belongs to one run.
// Failure: Kind::system (a full disk names path, offset and what is still there), Kind::corrupt, Kind::usage.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/folder.h"
#include "cohort/checkpoint/fence.h"
#include "cohort/checkpoint/manifest.h"
#include "cohort/checkpoint/safetensors.h"

namespace cohort::checkpoint {

class StagingDirectory;
struct ShardedSave;

// One file of a checkpoint; borrowed during save().
struct TensorFile {
  std::string name;  // "model.safetensors"
  std::vector<TensorView> tensors;
  Metadata metadata{};
};

struct Checkpoint {
  std::string path;  // of the folder
  Manifest manifest;
  std::string file(std::string_view name) const;  // its path; Kind::usage when the manifest does not list it
};

struct Refusal {
  std::string path;
  Error error;
};

struct Newest {
  std::optional<Checkpoint> checkpoint;  // empty: none that holds
  std::vector<Refusal> refused;          // newer ones that were damaged, newest first
};

struct Listed {
  std::int64_t step = 0;
  std::string path;
  bool operator==(const Listed&) const = default;
};

struct Saved {
  Checkpoint checkpoint;
  std::uint64_t bytes = 0;              // of all files
  std::vector<std::string> removed{};   // paths of older checkpoints
  std::vector<std::string> warnings{};  // the checkpoint is safe, but older ones could not be removed
};

struct StoreOptions {
  int keep = 3;          // whole checkpoints to keep, at least 1
  bool reread = true;    // read a new one back and compare digests before it gets its name and older ones go
  bool followed = true;  // what leads to the folder; false: a symbolic link or anything else in its place is refused, also at each save
  bool prepared = true;  // false: the folder is not looked at before prepare() or the first save
  // A save of an earlier epoch, or of another job, than the one that began from here gets no name and removes nothing. With it the manifest
  // says which job wrote ("job" of its texts), and checkpoints of jobs that came after this Store was made are not counted or removed.
  Fence fence{};
};

class Store {
 public:
  explicit Store(std::string folder, StoreOptions options = {});
  // Makes the folder (0700) if need be, durably, and removes temporaries that no living process writes.
  void prepare();
  const std::string& folder() const { return folder_; }
  Folder open() const { return {folder_, own()}; }
  int own() const { return options_.followed ? 0 : 1; }  // the last parts of its path that are no links (base/folder.h)

  // manifest.files is filled in here. A step that is there already is exchanged in one instant.
  Saved save(Manifest manifest, std::span<const TensorFile> files) const;
  // Rank 0's side of a save by several ranks (sharded_save.h): waits for the parts of the others, which write into the same staging.
  Saved save(Manifest manifest, std::span<const TensorFile> files, StagingDirectory& staging, const ShardedSave& sharded_save) const;
  std::vector<Listed> list() const;  // by name only, newest first
  // accept: throws for one that is whole and must not be used all the same; it is among the refused then.
  Newest newest(const std::function<void(const Checkpoint&)>& accept = nullptr) const;
  // The checkpoint of this step is found no more: its folder is called <word>-00001200 from now on, in place of one that was called so.
  // Returns its path. Kind::system where it cannot be.
  std::string set_aside(std::int64_t step, std::string_view word) const;
  // Reads everything and throws what is wrong: name, offset, digest.
  Checkpoint verify(const std::string& path) const;

 private:
  Saved guarded(Manifest manifest, std::span<const TensorFile> files, const std::function<Folder(Saved&)>& make) const;
  std::vector<ManifestFile> write_files(const Folder& into, std::span<const TensorFile> files) const;
  Folder complete(StagingDirectory& staging, const Saved& saved) const;          // the folder that it is in now
  bool publish(const StagingDirectory& staging, const std::string& name) const;  // true: exchanged with one that was there
  std::vector<Listed> list(const Folder& folder) const;
  void prune(const Folder& folder, Saved& saved) const;
  void remove_old(const Folder& folder, const Listed& old, Saved& saved) const;
  bool look(Newest& newest, const std::function<void(const Checkpoint&)>& accept) const;
  void note_jobs(const Folder& folder);
  bool may_remove(const Manifest& manifest) const;

  std::string folder_;
  StoreOptions options_;
  // Whose checkpoints count and go: this one's, and those that were there when it began. Shared: copies prune alike, whichever of them
  // was prepared.
  std::shared_ptr<std::set<std::string, std::less<>>> jobs_ = std::make_shared<std::set<std::string, std::less<>>>();
};

inline constexpr const char* kJobText = "job";  // of the manifest's texts: who wrote it

std::string step_name(std::int64_t step);                              // "step-00001200"
std::optional<std::int64_t> step_of_name(std::string_view name);       // only of names that step_name gives
Manifest read_manifest(const std::string& folder, std::int64_t step);  // manifest, step and the files' sizes, not their digests
Manifest read_manifest(const Folder& folder, std::int64_t step);
void check_digests(const Folder& folder, const Manifest& manifest);

}  // namespace cohort::checkpoint
