// For tests: files as they come from outside, made in memory.
#pragma once
#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::data {

inline std::string gzip(std::string_view text) {
  z_stream z{};
  deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1000, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

inline std::string idx_file(const std::vector<std::uint32_t>& sizes, std::string_view body) {
  std::string file{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (const std::uint32_t n : sizes)
    for (const int shift : {24, 16, 8, 0}) file += static_cast<char>(n >> shift);
  return file.append(body);
}

}  // namespace cohort::data
