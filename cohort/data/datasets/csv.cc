// A table in a file: float features, or an image's pixels, and a class or targets in each line (csv_table.h).
#include "cohort/data/csv_columns.h"
#include "cohort/data/csv_roles.h"
#include "cohort/data/csv_table.h"
#include "cohort/data/input.h"

namespace cohort::data {

const SpecSchema& csv_schema() {
  using Type = SpecParam::Type;
  const auto words = [](std::string name, std::string doc, std::vector<std::string> all) {
    return SpecParam{.name = std::move(name), .type = Type::word, .doc = std::move(doc), .preset = all.front(), .words = all};
  };
  const auto text = [](std::string name, std::string doc, std::string preset) {
    return SpecParam{.name = std::move(name), .type = Type::text, .doc = std::move(doc), .preset = std::move(preset)};
  };
  static const SpecSchema one{
      "csv",
      "a table: float features or pixels 0 to 255, and a class or numbers to predict in each line",
      {{.name = "file", .type = Type::text, .doc = "path, plain or gzip"},
       text("shape", "of a sample, as in 1x28x28; auto: one size, the features; 784 of them with a label are an image 1x28x28", "auto"),
       text("label", "column of the class, by name or number from 0 (-1: the last); auto: called label or class, of an image the first",
            "auto"),
       text("target", "columns of numbers to predict (regression): price, or height/weight", ""),
       text("features", "columns to learn from: a/b/c, or \"a,b,c\"; empty: all others", ""),
       text("ignore", "columns that are not to be learned from: id/name", ""),
       words("values", "what features are; auto: pixels 0 to 255 for a shape of three sizes, else float32", {"auto", "pixels", "floats"}),
       csv_labels_param(),
       words("missing", "empty, NA or nan: refused, the mean of the training set's column, 0, or the line is left out",
             {"error", "mean", "zero", "drop"}),
       csv_header_param("whether the first line has names; auto: columns are named, or it has no number, or a label that is none"),
       csv_classes_param(),
       words("separator", "between fields", {"comma", "semicolon", "tab"})}};
  return one;
}

char csv_separator(const SpecValues& v) {
  const std::string& word = v.word("separator");
  return word == "comma" ? ',' : word == "tab" ? '\t' : ';';
}

namespace {

std::shared_ptr<const Dataset> open_csv(const SpecValues& v) { return read_csv(read_input(v.text("file")), v); }

std::shared_ptr<const Dataset> open_csv_like(const SpecValues& v, const Form& training) {
  return read_csv(read_input(v.text("file")), v, &training);
}

}  // namespace

extern const DatasetKind row_csv{.name = "csv",
                                 .about = "a table of features and classes or numbers",
                                 .schema = csv_schema,
                                 .open = open_csv,
                                 .open_like = open_csv_like};

}  // namespace cohort::data
