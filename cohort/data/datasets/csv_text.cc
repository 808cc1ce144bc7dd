// Text classification by bytes: each line of the table has a text and a label. A text longer than the context is cut, a shorter one is
// filled up with zero bytes. Labels are numbers 0, 1, 2 .. or words; words become numbers in alphabetical order.
#include <algorithm>
#include <optional>

#include "cohort/base/error.h"
#include "cohort/data/csv_columns.h"
#include "cohort/data/dataset.h"
#include "cohort/data/formats.h"
#include "cohort/data/input.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;

const SpecSchema& schema() {
  static const SpecSchema one{
      "csv_text",
      "texts and labels in a table, by bytes",
      {{.name = "file", .type = Type::text, .doc = "path, plain or gzip"},
       {.name = "text", .type = Type::integer, .doc = "column of the text, from 0", .preset = "1", .low = 0, .high = 1e9},
       csv_label_param(),
       {.name = "context", .type = Type::integer, .doc = "bytes of a text that count", .preset = "128", .low = 1, .high = 1 << 24},
       csv_header_param("whether the first line has names; auto: its label is a word and the next one's a number"),
       csv_classes_param()}};
  return one;
}

struct Table {
  std::vector<std::uint8_t> texts;
  std::vector<std::string> labels;
};

Table read_table(std::string_view file, const SpecValues& v) {
  const auto text = static_cast<std::size_t>(v.integer("text"));
  const auto label = static_cast<std::size_t>(v.integer("label"));
  const auto context = static_cast<std::size_t>(v.integer("context"));
  Table table;
  CsvReader reader(file, v.text("file"));
  while (reader.next()) {
    const auto& fields = reader.fields();
    if (text >= fields.size() || label >= fields.size() || text == label) {
      throw_failure(Kind::usage, "{}: {} columns, text in column {}, label in column {}; set text= and label=", reader.place(),
                    fields.size(), text, label);
    }
    const std::string_view words = fields[text].substr(0, context);
    table.texts.insert(table.texts.end(), words.begin(), words.end());
    table.texts.resize(table.texts.size() + context - words.size());
    table.labels.emplace_back(fields[label]);
  }
  const auto& l = table.labels;
  const bool names_then_numbers = l.size() > 1 && !csv_number(l[0]) && csv_number(l[1]);
  if (!l.empty() && (v.word("header") == "yes" || (v.word("header") == "auto" && names_then_numbers))) {
    table.labels.erase(table.labels.begin());
    table.texts.erase(table.texts.begin(), table.texts.begin() + static_cast<std::ptrdiff_t>(context));
  }
  return table;
}

// Numbers as they are if all of them are; else the place of each word among all, in alphabetical order.
std::vector<std::int64_t> number(const std::vector<std::string>& words) {
  std::vector<std::int64_t> numbers;
  if (std::all_of(words.begin(), words.end(), [](const auto& w) { return csv_number(w).has_value(); })) {
    for (const auto& word : words) numbers.push_back(*csv_number(word));
    return numbers;
  }
  std::vector<std::string> names = words;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const auto& word : words) numbers.push_back(std::lower_bound(names.begin(), names.end(), word) - names.begin());
  return numbers;
}

std::shared_ptr<const Dataset> open(const SpecValues& v) {
  Table table = read_table(read_input(v.text("file")), v);
  std::vector<std::int64_t> labels = number(table.labels);
  Form form{.input = Input::tokens, .shape = {v.integer("context")}, .vocabulary = 256};
  form.classes = count_classes(labels, v.integer("classes"), v.text("file"));
  return std::make_shared<MemoryDataset>(std::move(form), v.text("file"), std::move(table.texts), std::move(labels));
}

}  // namespace

extern const DatasetKind row_csv_text{.name = "csv_text", .about = "a table of texts and labels", .schema = schema, .open = open};

}  // namespace cohort::data
