// What tells one data set from another: number and form of the samples, and their content. Ranks compare theirs before they train, and a
// run that resumes compares its own with that of the checkpoint. Times, paths and compression do not count: hosts have copies.
//   const Fingerprint mine = set->fingerprint();
//   difference(mine, "on rank 0", theirs, "on rank 2")   "'train.csv' is 600 samples on rank 0 but 599 samples on rank 2"
// Sets in memory hash everything, of large ones blocks spread evenly over them; others some samples. So it takes milliseconds and finds a
// set that grew, shrank, was relabelled or made anew; of a large set, not every single byte that changed.
// Owner: values. Threads: any. Failure: none; a set that cannot read a sample throws its own.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::data {

class Dataset;

struct FingerprintPart {
  std::string what;   // for messages alone: "train-images-idx3-ubyte", "pictures in photos/cat"
  std::string value;  // "47040000 bytes, content 3f2a61c0b85d9e17"
  bool operator==(const FingerprintPart& other) const { return value == other.value; }
};
using Fingerprint = std::vector<FingerprintPart>;

// One line for each part.
std::string to_text(const Fingerprint& fingerprint);
Fingerprint fingerprint_of_text(std::string_view text);
std::string samples_of(const Fingerprint& fingerprint);  // "600"

// The first part that differs, with both sides; empty where there is none.
std::string difference(const Fingerprint& first, std::string_view where_first, const Fingerprint& other, std::string_view where_other);

// Number and form of the samples: the parts every fingerprint begins with.
Fingerprint form_fingerprint(const Dataset& set);
// Bytes and labels of some samples, fetched twice: where a sample is not the same each time (random transforms), content says nothing.
FingerprintPart sampled_content(const Dataset& set);

// A 64-bit hash, the same on machines of one byte order; not against forgery. Of large memory: blocks spread evenly over it.
std::uint64_t content_hash(std::span<const std::uint8_t> bytes, std::uint64_t seed = 0);
std::string hash_text(std::uint64_t hash);  // 16 digits

}  // namespace cohort::data
