// A checkpoint that several ranks save together. Rank 0 makes the temporary folder; every rank writes its own files there, then its part
// (the manifest of what it wrote: `.part-00002`), by one rename; rank 0, when all parts are there, writes the whole manifest and renames
// the folder to its final name. Ranks coordinate through that folder: they share the disk anyhow, a slow one does not hold up the job's
// communication, and a disk that hangs costs a checkpoint and not the run.
//   rank 0:  StagingDirectory staging(..);  (broadcast staging.path());  store.save(manifest, files, staging, sharded_save);
//   others:  contribute(sharded_save, manifest, files, path);
// A rank that fails says so in its part; rank 0 then calls the save off and removes the folder, which the others notice. So every rank
// gets the same outcome: saved, or not and why. Owner: values. Threads: one per rank, not the training thread. Failure: Kind::system and
// Kind::timeout, naming ranks; every wait ends within sharded_save.patience.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/checkpoint/store.h"

namespace cohort::checkpoint {

struct ShardedSave {
  std::string folder;  // the temporary one
  int rank = 0, ranks = 1;
  Seconds patience{600};  // a slow disk may take so long for one rank's files more than for another's
  int own = 0;            // the last parts of the path that are no links (base/folder.h)
};

struct Part {
  std::vector<ManifestFile> files;
  std::vector<ManifestPiece> pieces;
};

// Writes files and lists what is in them; reread: and reads them back.
Part write_part(const Folder& folder, std::span<const TensorFile> files, bool reread);

// A rank above 0. path: the name that the whole checkpoint will have.
Saved contribute(const ShardedSave& sharded_save, const Manifest& manifest, std::span<const TensorFile> files, const std::string& path);
// A rank above 0 that cannot take part: calls the save off.
void decline(const ShardedSave& sharded_save, std::int64_t step, const Error& why) noexcept;

// Rank 0: the parts of the others, by rank; they are gone from the folder afterwards.
std::vector<Part> await_parts(const ShardedSave& sharded_save, std::int64_t step);

}  // namespace cohort::checkpoint
