// Files of a data set, whole, plain or gzip (told by their first bytes, not by their names).
// Threads: any. Failure: Kind::usage for files that are not there, with the names tried; Kind::corrupt with the byte offset for broken
// gzip.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "cohort/base/bytes.h"

namespace cohort::data {

inline constexpr std::size_t kMostInputBytes = 64_GiB;  // plain or inflated: larger sets are not for memory

// The content of the file, inflated if it is gzip.
std::string read_input(const std::string& path, std::size_t most = kMostInputBytes);

// The first of dir/name and dir/name.gz that exists, for each name in turn. hint: what to do when there is none.
std::string find_input(const std::string& dir, std::span<const std::string_view> names, std::string_view hint);

std::string inflate_gzip(std::string_view gzip, std::string_view where, std::size_t most);

}  // namespace cohort::data
