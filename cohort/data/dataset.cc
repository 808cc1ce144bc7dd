#include "cohort/data/dataset.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/open_table.h"
#include "cohort/base/registry.h"
#include "cohort/data/datasets_rows.inc"

namespace cohort::data {

std::string_view name_of(Input input) {
  switch (input) {
    case Input::pixels: return "images";
    case Input::tokens: return "tokens";
    case Input::floats: break;
  }
  return "float values";
}

std::int64_t Form::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t n : shape) count *= n;
  return count;
}

Dataset::Dataset(Form form, std::int64_t size) : form_(std::move(form)), size_(size) {
  if (size_ < 1) throw_failure(Kind::usage, "a data set without a single sample; check the path and the split");
}

std::vector<std::uint8_t> bytes_of(std::span<const float> values) {
  std::vector<std::uint8_t> bytes(values.size_bytes());
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

MemoryDataset::MemoryDataset(Form form, std::string source, std::vector<std::uint8_t> inputs, std::vector<std::int64_t> labels,
                             std::vector<float> values)
    : Dataset(form, form.targets > 0 ? std::ssize(values) / form.targets : std::ssize(labels)),
      source_(std::move(source)),
      inputs_(std::move(inputs)),
      labels_(std::move(labels)),
      values_(std::move(values)) {
  const auto each = static_cast<std::size_t>(form.bytes() + (form.next_tokens ? 1 : 0)), samples = static_cast<std::size_t>(size());
  if (inputs_.size() != samples * each || values_.size() != samples * static_cast<std::size_t>(form.targets)) {
    throw_failure(Kind::bug, "{}: {} bytes and {} targets for {} samples of {} bytes and {} targets", source_, inputs_.size(),
                  values_.size(), samples, each, form.targets);
  }
}

Sample MemoryDataset::sample(std::int64_t index, Scratch&) const {
  if (form().next_tokens) {  // one byte more than the context: the last target
    const std::uint8_t* at = inputs_.data() + index * (form().elements() + 1);
    return {.input = at, .targets = at + 1};
  }
  const std::uint8_t* at = inputs_.data() + index * form().bytes();
  if (form().targets > 0) return {.input = at, .values = values_.data() + index * form().targets};
  return {.input = at, .label = labels_[static_cast<std::size_t>(index)]};
}

void MemoryDataset::prefetch(std::int64_t index) const {
  if (index < 0 || index >= size()) return;
  constexpr std::int64_t kMostBytes = 4096;  // of a large image the first page; the processor follows a long run by itself
  const std::int64_t bytes = form().bytes(), end = std::min(bytes, kMostBytes);
  const std::uint8_t* at = inputs_.data() + index * (bytes + (form().next_tokens ? 1 : 0));
  for (std::int64_t i = 0; i < end; i += std::int64_t{kCacheLine}) __builtin_prefetch(at + i);
  if (!labels_.empty()) __builtin_prefetch(labels_.data() + index);
}

std::string MemoryDataset::where(std::int64_t index) const { return fmt::format("{}, sample {}", source_, index); }

namespace {

OpenTable<DatasetKind>& table() {
  static OpenTable<DatasetKind> one(kDatasetsRows);
  return one;
}

}  // namespace

std::span<const DatasetKind* const> dataset_rows() { return table().rows(); }
void add_dataset(const DatasetKind& row, std::string_view plugin) { table().add(row, "data set", plugin); }

std::shared_ptr<const Dataset> open_dataset(std::string_view text) {
  const Spec spec = Spec::parse(text);
  const DatasetKind& kind = find_row(dataset_rows(), spec.name, "data set");
  return kind.open(kind.schema().read(spec));
}

std::shared_ptr<const Dataset> open_dataset(std::string_view text, const Form& training) {
  const Spec spec = Spec::parse(text);
  const DatasetKind& kind = find_row(dataset_rows(), spec.name, "data set");
  const SpecValues values = kind.schema().read(spec);
  return kind.open_like != nullptr ? kind.open_like(values, training) : kind.open(values);
}

std::string dataset_help() {
  std::string text;
  for (const DatasetKind* kind : dataset_rows()) text += kind->schema().help();
  return text;
}

std::vector<std::int64_t> parse_shape(std::string_view text, std::size_t parts) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 31;
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (const std::string_view part : split(text, 'x')) {
    const std::int64_t n = parse_int(part);
    if (n < 1 || n > kMostElements / elements) {
      throw_failure(Kind::usage, "shape '{}': {} cannot be; sizes are positive and at most {} elements together", printable(text), n,
                    kMostElements);
    }
    elements *= n;
    shape.push_back(n);
  }
  if (shape.empty() || (parts != 0 && shape.size() != parts)) {
    throw_failure(Kind::usage, "shape '{}' has {} parts, expected {}, as in {}", printable(text), shape.size(), parts,
                  parts == 2 ? "28x28 (height x width)" : "1x28x28 (channels x height x width)");
  }
  return shape;
}

std::int64_t count_classes(std::span<const std::int64_t> labels, std::int64_t wanted, std::string_view source) {
  std::int64_t largest = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || (wanted > 0 && labels[i] >= wanted)) {
      throw_failure(Kind::corrupt, "{}: sample {} has label {}, expected 0 to {}; raise `classes` or repair the file", source, i, labels[i],
                    wanted > 0 ? wanted - 1 : std::numeric_limits<std::int64_t>::max());
    }
    largest = std::max(largest, labels[i]);
  }
  return wanted > 0 ? wanted : largest + 1;
}

}  // namespace cohort::data
