// Files of a data set, whole, plain or gzip (told by their first bytes, not by their names).
// Threads: any. Failure: Kind::usage for files that are not there, with the names tried; Kind::corrupt with the byte offset for broken
// gzip.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "cohort/base/bytes.h"

namespace cohort::data {

inline constexpr std::size_t kMostInputBytes = 64_GiB;  // plain or inflated: larger sets are not for memory

// A state of a file: it changes when the file is written, replaced or cut.
struct FileState {
  std::int64_t bytes = -1, modified_ns = 0;  // -1: it is not there
  std::uint64_t inode = 0;
  bool operator==(const FileState&) const = default;
};
FileState state_of(const std::string& path);

// What read() gives, which must be reading this file: Kind::corrupt naming it when it changed meanwhile, or since it was `before`.
std::string read_unchanged(const std::string& path, const FileState& before, const std::function<std::string()>& read);

// The content of the file, inflated if it is gzip. Kind::corrupt when it is written meanwhile.
std::string read_input(const std::string& path, std::size_t most = kMostInputBytes);

// The first of dir/name and dir/name.gz that exists, for each name in turn. hint: what to do when there is none.
std::string find_input(const std::string& dir, std::span<const std::string_view> names, std::string_view hint);

// Refused above `most` bytes, and above the limit of limits.h for one byte of the file.
std::string inflate_gzip(std::string_view gzip, std::string_view where, std::size_t most);

}  // namespace cohort::data
