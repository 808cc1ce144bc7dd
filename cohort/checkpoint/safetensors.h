// safetensors files, written and read without torch: the form in which tensors leave Cohort and come back.
//   u64 little-endian N | N bytes of JSON, padded with blanks | the tensors' bytes, little-endian, row-major, one after the other
//   {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..}
// Ours start their data on a 64-byte boundary and order tensors by descending alignment, then by name, so every element lies aligned.
// The reader believes nothing: lengths, offsets and shapes are checked against each other and the file before a byte is used. It is
// stricter than the format's own library in three points: keys it does not know, more than 64 dimensions, and -0 or 1e3 for a number
// are refused. The format has no checksum; ours are in the manifest (manifest.h).
// Owner: values; a TensorView borrows its bytes during the call. Threads: writing one per path; a SafetensorsFile any number of readers.
// Failure: Kind::corrupt with path, tensor and offset for a bad file, Kind::usage for tensors that cannot be written, Kind::system.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/fd.h"
#include "cohort/checkpoint/dtype.h"
#include "cohort/checkpoint/output.h"
#include "cohort/checkpoint/piece.h"

namespace cohort::checkpoint {

inline constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr std::size_t kMostDimensions = 64;              // as many as torch and numpy take

using Metadata = std::map<std::string, std::string, std::less<>>;

struct TensorView {
  std::string name;
  Dtype dtype = Dtype::f32;
  Shape shape;  // {} is a single element
  ConstBytes data;
  std::optional<PartOf> of{};  // a run of the elements of a tensor that several ranks share; then the shape is {count}
};

// Where a tensor went, for a manifest that lists pieces.
struct WrittenTensor {
  const TensorView* tensor = nullptr;
  std::uint64_t offset = 0;  // in the file
  std::string sha256;
};

// Where a tensor lies; offsets count from the start of the data.
struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;
  std::uint64_t bytes() const { return end - begin; }
  bool operator==(const TensorEntry&) const = default;
};

struct SafetensorsIndex {
  std::vector<TensorEntry> tensors;  // as they lie in the file: each begins where the one before ended, the last ends with the file
  Metadata metadata;
  std::uint64_t data_start = 0;  // offset in the file
  std::uint64_t data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
};

// Writes and syncs a new file. each: hashed one by one too, in the order of the file.
Written write_safetensors(const FileAt& file, std::span<const TensorView> tensors, const Metadata& metadata = {},
                          OutputOptions options = {}, std::vector<WrittenTensor>* each = nullptr);

// The two halves of reading a header; `where` is the path, for messages.
std::uint64_t header_bytes_of(ConstBytes first_eight, std::uint64_t file_bytes, std::string_view where);
SafetensorsIndex parse_header(std::string_view header, std::uint64_t file_bytes, std::string_view where);
// The first bytes of a file with these tensors, length and padding included. Entries as in an index.
std::string format_header(std::span<const TensorEntry> tensors, const Metadata& metadata);

// An open file whose header passed. Bytes are read by pread into the caller's memory: a file cut short under our feet is an error, not
// a SIGBUS, and parameters are filled without a copy in between.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::string path);
  const std::string& path() const { return path_; }
  const std::vector<TensorEntry>& tensors() const { return index_.tensors; }
  const Metadata& metadata() const { return index_.metadata; }
  std::uint64_t data_start() const { return index_.data_start; }  // offset in the file
  const TensorEntry* find(std::string_view name) const;           // nullptr when there is none
  const TensorEntry& at(std::string_view name) const;             // Kind::usage with the nearest name
  void read(const TensorEntry& tensor, Bytes into) const;         // exactly its bytes
  std::vector<std::byte> read(std::string_view name) const;

 private:
  std::string path_;
  Fd fd_;
  SafetensorsIndex index_;
  std::map<std::string_view, std::size_t> by_name_;  // views into index_
};

}  // namespace cohort::checkpoint
