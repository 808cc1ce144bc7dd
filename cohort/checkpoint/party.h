// Ranks that save one checkpoint together. Rank 0 makes the temporary folder; every rank writes its own files there, then its part (the
// manifest of what it wrote: `.part-00002`), by one rename; rank 0, when all parts are there, writes the whole manifest and gives the
// folder its name. The folder is also where ranks meet: they share the disk anyhow, nothing of the job's communication is held up by a slow
// one, and a disk that hangs costs a checkpoint and not the run.
//   rank 0:  Workshop w(..);  (tell the others w.path());  store.save(manifest, files, w, party);
//   others:  contribute(party, manifest, files, path);
// A rank that fails says so in its part; rank 0 then calls the save off and removes the folder, which the others notice. So every rank
// hears the same end: saved, or not and why. Owner: values. Threads: one per rank, no training thread. Failure: Kind::system and
// Kind::timeout, naming ranks; every wait ends within party.patience.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/checkpoint/store.h"

namespace cohort::checkpoint {

struct Party {
  std::string folder;  // the temporary one
  int rank = 0, ranks = 1;
  Seconds patience{600};  // a slow disk may take so long for one rank's files more than for another's
};

struct Part {
  std::vector<ManifestFile> files;
  std::vector<ManifestPiece> pieces;
};

// Writes files and lists what is in them; reread: and reads them back.
Part write_part(const std::string& folder, std::span<const TensorFile> files, bool reread);

// A rank above 0. path: the name that the whole checkpoint will have.
Saved contribute(const Party& party, const Manifest& manifest, std::span<const TensorFile> files, const std::string& path);
// A rank above 0 that cannot take part: calls the save off.
void decline(const Party& party, std::int64_t step, const Error& why) noexcept;

// Rank 0: the parts of the others, by rank; they are gone from the folder afterwards.
std::vector<Part> await_parts(const Party& party, std::int64_t step);

}  // namespace cohort::checkpoint
