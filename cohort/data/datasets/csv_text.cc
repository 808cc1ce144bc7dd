// Text classification by bytes: each line of the table has a text and a label. A text longer than the context is cut, a shorter one is
// filled up with zero bytes. Labels are numbers 0, 1, 2 .. or words; words become numbers in alphabetical order, those of a test set as
// training numbered them. A file to predict may lack the labels.
#include <algorithm>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/data/csv_classes.h"
#include "cohort/data/csv_columns.h"
#include "cohort/data/csv_roles.h"
#include "cohort/data/dataset.h"
#include "cohort/data/input.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;

const SpecSchema& schema() {
  const auto column = [](std::string name, std::string doc, std::string preset) {
    return SpecParam{.name = std::move(name), .type = Type::text, .doc = std::move(doc), .preset = std::move(preset)};
  };
  static const SpecSchema one{
      "csv_text",
      "texts and labels in a table, by bytes",
      {{.name = "file", .type = Type::text, .doc = "path, plain or gzip"},
       column("text", "column of the text, by name or number from 0 (-1: the last)", "1"),
       column("label", "column of the label, by name or number from 0 (-1: the last)", "0"),
       {.name = "context", .type = Type::integer, .doc = "bytes of a text that count", .preset = "128", .low = 1, .high = 1 << 24},
       csv_labels_param(),
       csv_header_param("whether the first line has names; auto: columns are named, or its label is a word that no other line has"),
       csv_classes_param()}};
  return one;
}

struct Columns {
  CsvRoles roles;  // header, names, label, unlabelled
  std::size_t text = 0;
};

bool is_among(const Fields& all, const std::string& one) { return std::find(all.begin(), all.end(), one) != all.end(); }

// Names of columns stand in no second line; a label does, or its class would have one sample.
bool only_here(std::string_view file, const std::string& path, std::size_t label, const std::string& word) {
  CsvReader reader(file, path);
  reader.next();
  bool others = false;
  for (; reader.next(); others = true)
    if (trim(reader.fields()[label]) == word) return false;
  return others;
}

bool has_header(std::string_view file, const Fields& first, const SpecValues& v, const Form* training) {
  const std::string &said = v.word("header"), &path = v.text("file"), &text = v.text("text"), &label = v.text("label");
  const bool named = !column_number(text) || !column_number(label);
  if (said == "no" && named) throw_failure(Kind::usage, "{}: header=no, but text= or label= name columns; say their numbers, from 0", path);
  if (said != "auto") return said == "yes";
  if (training != nullptr && training->columns.size() == 1 && is_among(first, training->columns[0])) return true;
  if (named) return training == nullptr || first.size() > 1 || is_among(first, text);  // texts alone: the names were training's
  const auto column = find_column(label, {}, first.size());
  if (!column || csv_number(first[*column])) return false;
  if (training != nullptr && is_among(training->names, first[*column])) return false;
  if (training != nullptr && !training->columns.empty()) return false;  // a class that training did not have is refused, not skipped
  return only_here(file, path, *column, first[*column]);
}

Columns columns_of(std::string_view file, const SpecValues& v, const Form* training) {
  const std::string& path = v.text("file");
  CsvReader reader(file, path);
  if (!reader.next()) throw_failure(Kind::usage, "{}: an empty file", path);
  const Fields first = trimmed(reader.fields());
  const std::size_t width = first.size();
  Columns columns;
  CsvRoles& roles = columns.roles;
  roles.header = has_header(file, first, v, training);
  if (roles.header) roles.names = first;
  const bool only_texts = training != nullptr && width == 1;
  const bool known = training != nullptr && training->columns.size() == 1 && is_among(roles.names, training->columns[0]);
  columns.text = only_texts ? 0 : resolve_column(known ? training->columns[0] : v.text("text"), roles.names, width, path, "text");
  const auto label = find_column(v.text("label"), roles.names, width);
  roles.unlabelled = training != nullptr && (!label || *label == columns.text);
  if (!roles.unlabelled) roles.label = resolve_column(v.text("label"), roles.names, width, path, "label");
  if (roles.label == columns.text)
    throw_failure(Kind::usage, "{}: {} columns, text and label in column {}; set text= and label=", path, width, columns.text);
  return columns;
}

std::shared_ptr<const Dataset> read(std::string_view file, const SpecValues& v, const Form* training) {
  file = without_byte_order_mark(file);
  const auto [roles, text] = columns_of(file, v, training);
  const auto context = static_cast<std::size_t>(v.integer("context"));
  std::vector<std::uint8_t> texts;
  std::vector<std::int64_t> labels;
  CsvClasses classes(v, training);
  CsvReader reader(file, v.text("file"));
  if (roles.header) reader.next();
  while (reader.next()) {
    const std::string_view words = reader.fields()[text].substr(0, context);
    texts.insert(texts.end(), words.begin(), words.end());
    texts.resize(texts.size() + context - words.size());
    if (!roles.label) {
      labels.push_back(kNoLabel);
      continue;
    }
    const std::string_view label = reader.fields()[*roles.label];
    if (trim(label).empty()) throw_failure(Kind::corrupt, "{}: {} has no value", reader.place(), roles.column(*roles.label));
    classes.add(label, reader, roles);
  }
  if (texts.empty()) throw_failure(Kind::usage, "{}: not one line with a text; header={}", v.text("file"), v.word("header"));
  Form form{.input = Input::tokens, .shape = {v.integer("context")}, .vocabulary = 256, .unlabelled = roles.unlabelled};
  if (!roles.names.empty()) form.columns = {roles.names[text]};
  if (roles.label) {
    labels = classes.finish(form);
  } else {
    form.names = training->names;
    form.classes = training->classes;
  }
  return std::make_shared<MemoryDataset>(std::move(form), v.text("file"), std::move(texts), std::move(labels));
}

std::shared_ptr<const Dataset> open(const SpecValues& v) { return read(read_input(v.text("file")), v, nullptr); }

std::shared_ptr<const Dataset> open_like(const SpecValues& v, const Form& training) {
  return read(read_input(v.text("file")), v, &training);
}

}  // namespace

extern const DatasetKind row_csv_text{
    .name = "csv_text", .about = "a table of texts and labels", .schema = schema, .open = open, .open_like = open_like};

}  // namespace cohort::data
