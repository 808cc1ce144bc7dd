// A header walks through four states: the file's object, __metadata__, a tensor's object, one of its arrays. JSON that would need a
// fifth (anything nested deeper) is refused where it starts, so depth is bounded without counting it.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/safetensors.h"

namespace cohort::checkpoint {
namespace {

constexpr std::uint64_t kLengthBytes = 8;

class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::string_view where, SafetensorsIndex& index) : where_(where), index_(index) {}

  bool start_object(std::size_t) override {
    if (state_ == State::before) return enter(State::file);
    if (state_ == State::file) return enter(key_ == "__metadata__" ? State::metadata : State::tensor);
    refuse("an object where none is allowed");
  }
  bool end_object() override {
    if (state_ == State::tensor) finish_tensor();
    return enter(state_ == State::file ? State::after : State::file);
  }
  bool start_array(std::size_t) override {
    if (state_ != State::tensor || (field_ != "shape" && field_ != "data_offsets")) refuse("an array where none is allowed");
    return enter(State::numbers);
  }
  bool end_array() override { return enter(State::tensor); }

  bool key(std::string& key) override {
    if (state_ == State::file) {
      key_ = key;
      if (!names_.insert(key).second) refuse("the key is given twice");
      current_ = {};
      current_.name = key;
      seen_.clear();
      offsets_.clear();
    } else if (state_ == State::metadata) {
      field_ = key;
      if (index_.metadata.contains(key)) refuse(fmt::format("the key '{}' is given twice", printable(key)));
    } else {
      field_ = key;
      if (key != "dtype" && key != "shape" && key != "data_offsets") refuse(fmt::format("unknown key '{}'", printable(key)));
      if (!seen_.insert(key).second) refuse(fmt::format("'{}' is given twice", key));
    }
    return true;
  }
  bool string(std::string& text) override {
    if (state_ == State::metadata) {
      index_.metadata.emplace(field_, text);
      return true;
    }
    if (state_ != State::tensor || field_ != "dtype") refuse("a text where none is allowed");
    const auto dtype = dtype_of_name(text);
    if (!dtype) refuse(fmt::format("unknown dtype '{}'", printable(text)));
    current_.dtype = *dtype;
    return true;
  }
  bool number_unsigned(std::uint64_t number) override {
    if (state_ != State::numbers) refuse("a number where none is allowed");
    if (field_ == "data_offsets") {
      if (offsets_.size() == 2) refuse("more than two data_offsets");
      offsets_.push_back(number);
      return true;
    }
    if (number > INT64_MAX) refuse(fmt::format("dimension {} is too large", number));
    if (current_.shape.size() == kMostDimensions) refuse(fmt::format("more than {} dimensions", kMostDimensions));
    current_.shape.push_back(static_cast<std::int64_t>(number));
    return true;
  }
  bool number_integer(std::int64_t number) override { refuse(fmt::format("{} is no size", number)); }
  bool number_float(double, const std::string& text) override { refuse(fmt::format("{} is no size", printable(text))); }
  bool null() override { refuse("null where none is allowed"); }
  bool boolean(bool) override { refuse("true or false where none is allowed"); }
  bool binary(nlohmann::json::binary_t&) override { refuse("binary where none is allowed"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    refuse(fmt::format("no JSON at offset {}", kLengthBytes + position - std::min<std::size_t>(position, 1)));
  }

 private:
  enum class State { before, file, metadata, tensor, numbers, after };

  bool enter(State state) {
    state_ = state;
    return true;
  }
  [[noreturn]] void refuse(const std::string& why) const {
    if (names_.empty()) throw_failure(Kind::corrupt, "{}: bad safetensors header: {}", where_, why);
    throw_failure(Kind::corrupt, "{}: bad safetensors header at '{}': {}", where_, printable(key_), why);
  }
  void finish_tensor() {
    if (seen_.size() != 3) refuse("dtype, shape and data_offsets are needed");
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1]) refuse(fmt::format("data_offsets [{}] are no range", fmt::join(offsets_, ", ")));
    current_.begin = offsets_[0];
    current_.end = offsets_[1];
    const auto bytes = tensor_bytes(current_.dtype, current_.shape);
    const auto what = fmt::format("{} of shape [{}]", dtype_name(current_.dtype), fmt::join(current_.shape, ", "));
    if (!bytes) refuse(what + " is no whole number of bytes");
    if (*bytes != current_.bytes())
      refuse(fmt::format("{} has {} bytes, data_offsets [{}, {}] span {}", what, *bytes, current_.begin, current_.end, current_.bytes()));
    index_.tensors.push_back(std::move(current_));
  }

  const std::string_view where_;
  SafetensorsIndex& index_;
  State state_ = State::before;
  std::string key_, field_;
  std::set<std::string> names_, seen_;
  TensorEntry current_;
  std::vector<std::uint64_t> offsets_;
};

// No holes, no overlap, and the last byte of the last tensor is the last of the file.
void check_layout(SafetensorsIndex& index, std::uint64_t data_bytes, std::string_view where) {
  std::sort(index.tensors.begin(), index.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name); });
  std::uint64_t at = 0;
  for (const TensorEntry& t : index.tensors) {
    if (t.begin != at)
      throw_failure(Kind::corrupt, "{}: tensor '{}' begins at data offset {}, the one before it ends at {}: the file has {}", where,
                    printable(t.name), t.begin, at, t.begin > at ? "a hole" : "an overlap");
    at = t.end;
  }
  if (at != data_bytes)
    throw_failure(Kind::corrupt, "{}: tensors end at data offset {}, the file's data at {}: the file is {}", where, at, data_bytes,
                  at > data_bytes ? "cut short" : "too long");
}

}  // namespace

std::uint64_t header_bytes_of(ConstBytes first_eight, std::uint64_t file_bytes, std::string_view where) {
  if (first_eight.size() < kLengthBytes || file_bytes < kLengthBytes)
    throw_failure(Kind::corrupt, "{}: {} bytes are too few for a safetensors file", where, file_bytes);
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, first_eight.data(), sizeof bytes);
  if (bytes > kMostHeaderBytes)
    throw_failure(Kind::corrupt, "{}: a header of {} bytes (at most {}); this is no safetensors file", where, bytes, kMostHeaderBytes);
  if (bytes > file_bytes - kLengthBytes)
    throw_failure(Kind::corrupt, "{}: a header of {} bytes in a file of {}: the file is cut short", where, bytes, file_bytes);
  return bytes;
}

SafetensorsIndex parse_header(std::string_view header, std::uint64_t file_bytes, std::string_view where) {
  if (header.empty() || header.front() != '{') throw_failure(Kind::corrupt, "{}: the header does not begin with '{{' at offset 8", where);
  SafetensorsIndex index;
  HeaderReader reader(where, index);
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  index.data_start = kLengthBytes + header.size();
  check_layout(index, file_bytes - index.data_start, where);
  return index;
}

}  // namespace cohort::checkpoint
