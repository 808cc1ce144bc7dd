#include "cohort/data/formats.h"

#include "cohort/base/error.h"

namespace cohort::data {

IdxArray parse_idx(std::string_view file, std::string_view where) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(file[i])); };
  if (file.size() < 4) throw_failure(Kind::corrupt, "{}: {} bytes, an IDX file has at least 4; fetch it again", where, file.size());
  if (byte(0) != 0 || byte(1) != 0 || byte(2) != 8 || byte(3) < 1 || byte(3) > 4) {
    throw_failure(
        Kind::corrupt,
        "{}: starts with {:02x} {:02x} {:02x} {:02x} at byte 0, expected 00 00 08 and 1 to 4 dimensions: not an IDX file of bytes", where,
        byte(0), byte(1), byte(2), byte(3));
  }
  IdxArray array;
  const std::size_t header = 4 + 4 * byte(3);
  if (file.size() < header)
    throw_failure(Kind::corrupt, "{}: ends at byte {} inside its header of {}; fetch it again", where, file.size(), header);
  std::size_t elements = 1;
  for (std::size_t at = 4; at < header; at += 4) {
    const std::uint32_t size = byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
    if (__builtin_mul_overflow(elements, std::size_t{size}, &elements)) {
      throw_failure(Kind::corrupt, "{}: the sizes up to byte {} are more than memory can hold", where, at + 4);
    }
    array.sizes.push_back(size);
  }
  array.body = file.substr(header);
  if (array.body.size() != elements) {
    throw_failure(Kind::corrupt,
                  "{}: {} bytes after byte {}, the header promises {}; the file was cut short or is not what it says, fetch it again",
                  where, array.body.size(), header, elements);
  }
  return array;
}

CifarRecords parse_cifar(std::string_view file, std::string_view where) {
  constexpr std::size_t kRecord = kCifarPixels + 1;
  if (file.empty() || file.size() % kRecord != 0) {
    throw_failure(Kind::corrupt,
                  "{}: {} bytes are no whole number of records of {} (the last one starts at byte {}); fetch the binary version again",
                  where, file.size(), kRecord, file.size() / kRecord * kRecord);
  }
  const CifarRecords records{file};
  for (std::size_t i = 0; i < records.count(); ++i) {
    if (records.label(i) > 9)
      throw_failure(Kind::corrupt, "{}: label {} at byte {}, expected 0 to 9", where, records.label(i), i * kRecord);
  }
  return records;
}

std::string CsvReader::place() const { return fmt::format("{}, line {}, byte {}", where_, start_line_, start_); }

void CsvReader::fail(std::size_t at, std::string_view what) const {
  throw_failure(Kind::corrupt, "{}, line {}, byte {}: {}", where_, line_, at, what);
}

std::string_view CsvReader::bare() {
  const std::size_t from = at_;
  while (at_ < file_.size() && file_[at_] != separator_ && file_[at_] != '\n' && file_[at_] != '"') ++at_;
  if (at_ < file_.size() && file_[at_] == '"') fail(at_, "a quote inside a field without quotes; put the field in quotes and double it");
  std::size_t to = at_;
  if (to > from && file_[to - 1] == '\r' && (at_ == file_.size() || file_[at_] == '\n')) --to;
  return file_.substr(from, to - from);
}

std::string_view CsvReader::quoted() {
  const std::size_t open = at_++;
  std::size_t from = at_;
  std::string* joined = nullptr;
  for (;;) {
    const std::size_t quote = file_.find('"', at_);
    if (quote == std::string_view::npos) fail(open, "a quoted field that never ends");
    for (std::size_t i = at_; i < quote; ++i) line_ += file_[i] == '\n' ? 1 : 0;
    at_ = quote + 1;
    const bool doubled = at_ < file_.size() && file_[at_] == '"';
    if (!doubled && joined == nullptr) return file_.substr(from, quote - from);
    if (joined == nullptr) joined = &unescaped_.emplace_back();
    joined->append(file_.substr(from, quote - from + (doubled ? 1 : 0)));
    if (!doubled) return *joined;
    from = ++at_;
  }
}

bool CsvReader::next() {
  fields_.clear();
  unescaped_.clear();
  if (at_ >= file_.size()) return false;
  start_ = at_;
  start_line_ = line_;
  for (;;) {
    const bool in_quotes = at_ < file_.size() && file_[at_] == '"';
    fields_.push_back(in_quotes ? quoted() : bare());
    if (in_quotes && file_.substr(at_, 2) == "\r\n") ++at_;
    if (in_quotes && at_ + 1 == file_.size() && file_[at_] == '\r') ++at_;
    if (at_ == file_.size() || file_[at_] == '\n') break;
    if (file_[at_] != separator_)
      fail(at_, fmt::format("expected a {} or the end of the line after the closing quote", separator_ == ',' ? "comma" : "separator"));
    ++at_;
  }
  if (at_ < file_.size()) {
    ++at_;
    ++line_;
  }
  if (width_ == 0) width_ = fields_.size();
  if (fields_.size() != width_) {
    throw_failure(Kind::corrupt, "{}: {} fields, expected {} as in the first line", place(), fields_.size(), width_);
  }
  return true;
}

}  // namespace cohort::data
