// The file formats of data sets, as pure functions over bytes that may be anything (fuzz/idx_fuzz.cc, cifar_fuzz.cc, csv_fuzz.cc).
// Owner: results borrow the bytes given. Threads: any. Failure: Kind::corrupt naming `where` and the byte offset, what was expected and
// found.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::data {

// IDX of unsigned bytes: 00 00 08 n, n big-endian 32-bit sizes, then the product of the sizes in bytes, no more and no less.
struct IdxArray {
  std::vector<std::int64_t> sizes;
  std::string_view body;
};
IdxArray parse_idx(std::string_view file, std::string_view where);

// CIFAR-10, binary version: records of a label 0..9 and 3 x 32 x 32 planar pixels.
inline constexpr std::int64_t kCifarPixels = std::int64_t{3} * 32 * 32;
struct CifarRecords {
  std::string_view file;
  std::size_t count() const { return file.size() / (kCifarPixels + 1); }
  std::uint8_t label(std::size_t i) const { return static_cast<std::uint8_t>(file[i * (kCifarPixels + 1)]); }
  std::string_view pixels(std::size_t i) const { return file.substr(i * (kCifarPixels + 1) + 1, kCifarPixels); }
};
CifarRecords parse_cifar(std::string_view file, std::string_view where);

// CSV by RFC 4180: fields between commas (or another separator), records between line ends (\n or \r\n), a field in quotes may hold
// separators, line ends and "" for a quote. Every record must have as many fields as the first. The last line end may be missing.
class CsvReader {
 public:
  CsvReader(std::string_view file, std::string where, char separator = ',')
      : file_(file), where_(std::move(where)), separator_(separator) {}
  bool next();                                                             // to the next record; false at the end
  const std::vector<std::string_view>& fields() const { return fields_; }  // valid until next()
  std::string place() const;                                               // "data.csv, line 3, byte 120": where the current record starts

 private:
  std::string_view quoted();
  std::string_view bare();
  [[noreturn]] void fail(std::size_t at, std::string_view what) const;

  std::string_view file_;
  std::string where_;
  char separator_;
  std::size_t at_ = 0;
  std::size_t start_ = 0;
  std::int64_t line_ = 1, start_line_ = 1;
  std::size_t width_ = 0;  // fields of the first record
  std::vector<std::string_view> fields_;
  std::deque<std::string> unescaped_;  // fields that had "" in them
};

}  // namespace cohort::data
