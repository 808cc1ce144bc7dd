#include "cohort/checkpoint/shard_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/base/text.h"

namespace cohort::checkpoint {
namespace {

PartOf part_of(const Cut& cut) { return {cut.tensor->name, cut.tensor->shape, cut.first}; }
std::uint64_t bytes_of(const Cut& cut) { return cut.count * dtype_bits(cut.tensor->dtype) / 8; }

TensorEntry entry_of(const Cut& cut, std::uint64_t begin) {
  const bool whole = cut.count == cut.tensor->elements();
  const Shape shape = whole ? cut.tensor->shape : Shape{static_cast<std::int64_t>(cut.count)};
  return {piece_name(part_of(cut), cut.count), cut.tensor->dtype, shape, begin, begin + bytes_of(cut)};
}

}  // namespace

ShardWriter::ShardWriter(const Folder& folder, std::vector<std::string> names, std::vector<Cut> cuts, const Metadata& metadata,
                         OutputOptions options)
    : names_(std::move(names)), cuts_(std::move(cuts)), files_(names_.size()) {
  for (const Cut& cut : cuts_) {
    File& file = files_[cut.file];
    file.entries.push_back(entry_of(cut, file.filled));
    file.filled = file.entries.back().end;
  }
  for (std::size_t i = 0; i < files_.size(); ++i) {
    File& file = files_[i];
    const auto header = format_header(file.entries, metadata);
    file.header = header.size();
    file.filled = 0;
    file.entries = {};  // thousands of names, needed no longer
    file.output = std::make_unique<Output>(FileAt(folder, names_[i]), options);
    file.output->write(std::as_bytes(std::span(header)));
  }
  close_full_cuts();
}

void ShardWriter::close_full_cuts() {
  for (; now_ < cuts_.size() && done_ == bytes_of(cuts_[now_]); ++now_, done_ = 0) {
    const Cut& cut = cuts_[now_];
    File& file = files_[cut.file];
    pieces_.push_back({names_[cut.file], file.header + file.filled, cut.tensor->dtype, part_of(cut), cut.count, hash_.hex()});
    file.filled += done_;
    hash_ = {};
  }
}

void ShardWriter::take(ConstBytes bytes) {
  while (!bytes.empty()) {
    if (now_ == cuts_.size()) throw_failure(Kind::bug, "{}: {} bytes more than its tensors have", names_.back(), bytes.size());
    const auto here = bytes.first(std::min<std::uint64_t>(bytes.size(), bytes_of(cuts_[now_]) - done_));
    files_[cuts_[now_].file].output->write(here);
    hash_.add(here);
    done_ += here.size();
    bytes = bytes.subspan(here.size());
    close_full_cuts();
  }
}

Part ShardWriter::finish() {
  if (now_ != cuts_.size()) throw_failure(Kind::bug, "{} of {} runs were filled", now_, cuts_.size());
  Part part;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const auto written = files_[i].output->finish();
    part.files.push_back({names_[i], written.bytes, written.sha256});
  }
  part.pieces = std::move(pieces_);
  return part;
}

}  // namespace cohort::checkpoint
