// A table with an image in each line: one column of labels, the others pixels 0 to 255, row after row, channel after channel.
#include <charconv>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/data/csv_columns.h"
#include "cohort/data/dataset.h"
#include "cohort/data/formats.h"
#include "cohort/data/input.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;

const SpecSchema& schema() {
  static const SpecSchema one{"csv",
                              "images in a table: a label and pixels 0 to 255 in each line",
                              {{.name = "file", .type = Type::text, .doc = "path, plain or gzip"},
                               {.name = "shape", .type = Type::text, .doc = "channels x height x width", .preset = "1x28x28"},
                               csv_label_param(),
                               csv_header_param("whether the first line has names; auto: its label is no number"),
                               csv_classes_param()}};
  return one;
}

std::uint8_t pixel(std::string_view text, const CsvReader& reader, std::size_t column) {
  unsigned value = 256;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value > 255) {
    throw_failure(Kind::corrupt, "{}: column {} holds '{}', expected a pixel 0 to 255", reader.place(), column, printable(text, 40));
  }
  return static_cast<std::uint8_t>(value);
}

std::shared_ptr<const Dataset> open(const SpecValues& v) {
  const std::string& path = v.text("file");
  Form form{.shape = parse_shape(v.text("shape"), 3)};
  const auto label = static_cast<std::size_t>(v.integer("label"));
  const auto width = static_cast<std::size_t>(form.elements()) + 1;
  const std::string file = read_input(path);
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  CsvReader reader(file, path);
  for (bool first = true; reader.next(); first = false) {
    const auto& fields = reader.fields();
    if (fields.size() != width || label >= width) {
      throw_failure(Kind::usage, "{}: {} columns, label in column {}; shape {} wants {} columns; set shape= and label=", reader.place(),
                    fields.size(), label, v.text("shape"), width);
    }
    if (first && is_header(v.word("header"), fields[label])) continue;
    labels.push_back(csv_integer(fields[label], reader, label));
    for (std::size_t i = 0; i < width; ++i)
      if (i != label) pixels.push_back(pixel(fields[i], reader, i));
  }
  form.classes = count_classes(labels, v.integer("classes"), path);
  return std::make_shared<MemoryDataset>(std::move(form), path, std::move(pixels), std::move(labels));
}

}  // namespace

extern const DatasetKind row_csv{.name = "csv", .about = "a table of labels and pixels", .schema = schema, .open = open};

}  // namespace cohort::data
