#include "cohort/data/csv_roles.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/data/csv_columns.h"
#include "cohort/data/csv_values.h"

namespace cohort::data {
namespace {

constexpr std::size_t kMnistPixels = 784;

// "price", "a/b/c" or "a,b,c": commas need quotes around the list; a name with a slash stands alone or between commas.
Fields listed(const std::string& text, const Fields& names) {
  if (trim(text).empty()) return {};
  if (std::find(names.begin(), names.end(), text) != names.end()) return {text};
  Fields parts;
  for (const std::string_view part : split(text, text.find(',') != std::string::npos ? ',' : '/')) parts.emplace_back(trim(part));
  return parts;
}

struct FirstLines {
  Fields first, second;
};

FirstLines first_lines(std::string_view file, const SpecValues& v) {
  CsvReader reader(file, v.text("file"), csv_separator(v));
  FirstLines lines;
  if (!reader.next()) throw_failure(Kind::usage, "{}: an empty file", v.text("file"));
  lines.first = trimmed(reader.fields());
  if (reader.next()) lines.second = trimmed(reader.fields());
  return lines;
}

bool names_columns(const SpecValues& v) {
  if (v.text("label") != "auto" && !column_number(v.text("label"))) return true;
  for (const char* key : {"target", "features", "ignore"})
    for (const std::string& one : listed(v.text(key), {}))
      if (!column_number(one)) return true;
  return false;
}

bool plain_number(const std::string& field) { return csv_float(field).has_value(); }

// auto: names are used; or no field of the first line is a number; or its label is none and that of the next line is.
bool has_header(const FirstLines& lines, const SpecValues& v, const Form* training) {
  const std::string& said = v.word("header");
  if (said == "no" && names_columns(v))
    throw_failure(Kind::usage, "{}: header=no, but label=, target=, features= or ignore= name columns; say their numbers, from 0",
                  v.text("file"));
  if (said != "auto") return said == "yes";
  const Fields& first = lines.first;
  const auto number = [](const std::string& field) { return plain_number(field) || csv_missing(field); };
  const bool bare_features = training != nullptr && std::all_of(first.begin(), first.end(), number);  // the names were training's
  if (names_columns(v) && !bare_features) return true;
  if (std::none_of(first.begin(), first.end(), number)) return true;
  const Fields targets = listed(v.text("target"), {});
  const std::string text = !targets.empty() ? targets[0] : v.text("label") == "auto" ? "0" : v.text("label");
  const auto label = find_column(text, {}, first.size());
  if (!label || *label >= first.size()) return false;
  return !plain_number(first[*label]) && *label < lines.second.size() && plain_number(lines.second[*label]);
}

// A column that is called so, in any case; -1: none.
std::optional<std::size_t> called(const Fields& names, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words)
    for (std::size_t i = 0; i < names.size(); ++i)
      if (names[i].size() == word.size() && std::equal(word.begin(), word.end(), names[i].begin(), [](char a, char b) {
            return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
          }))
        return i;
  return std::nullopt;
}

std::vector<std::int64_t> wanted_shape(const SpecValues& v, const Form* training) {
  if (v.text("shape") != "auto") return parse_shape(v.text("shape"), 0);
  return training != nullptr ? training->shape : std::vector<std::int64_t>{};
}

std::size_t elements(const std::vector<std::int64_t>& shape) {
  return static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
}

// The columns to learn. For a test set or one to predict they may not be there.
void find_learned(CsvRoles& roles, const SpecValues& v, std::size_t width, const Form* training) {
  const std::string &path = v.text("file"), &label = v.text("label");
  const Fields targets = listed(v.text("target"), roles.names);
  if (!targets.empty() && label != "auto")
    throw_failure(Kind::usage, "{}: label={} and target={}: a table has classes or float targets, not both", path, label, v.text("target"));
  const bool bare = training != nullptr && !training->shape.empty() && width == elements(training->shape) && roles.names.empty();
  const auto absent = [&](const std::string& text) {  // not there, or, by number, what training took for a feature
    if (training == nullptr || roles.names.empty()) return bare;
    const auto column = find_column(text, roles.names, width);
    const Fields& known = training->columns;
    return !column || std::find(known.begin(), known.end(), roles.names[*column]) != known.end();
  };
  roles.unlabelled = !targets.empty() ? std::any_of(targets.begin(), targets.end(), absent) : bare || (label != "auto" && absent(label));
  if (roles.unlabelled) return;
  for (const std::string& one : targets) roles.targets.push_back(resolve_column(one, roles.names, width, path, "target"));
  if (!targets.empty()) return;
  if (label != "auto") {
    roles.label = resolve_column(label, roles.names, width, path, "label");
    return;
  }
  roles.label = called(roles.names, {"label", "class"});
  const std::vector<std::int64_t> shape = wanted_shape(v, training);
  const bool image = shape.size() == 3 || (shape.empty() && width == kMnistPixels + 1);
  if (!roles.label && image && v.word("values") != "floats") roles.label = 0;
  if (!roles.label && training != nullptr) roles.unlabelled = true;
  if (!roles.label && training == nullptr)
    throw_failure(Kind::usage, "{}: which of the {} columns is to be learned? say label=COLUMN for classes or target=COLUMN for numbers{}",
                  path, width, roles.names.empty() ? ", by number, from 0 (-1: the last one)" : ": " + join(roles.names, ", "));
}

void find_features(CsvRoles& roles, const SpecValues& v, std::size_t width, const Form* training) {
  const std::string& path = v.text("file");
  const Fields chosen = training != nullptr && !training->columns.empty() && !roles.names.empty() ? training->columns
                                                                                                  : listed(v.text("features"), roles.names);
  for (const std::string& one : chosen) roles.features.push_back(resolve_column(one, roles.names, width, path, "features"));
  std::vector<std::size_t> left_out = roles.targets;
  if (roles.label) left_out.push_back(*roles.label);
  if (chosen.empty()) {
    for (const std::string& one : listed(v.text("ignore"), roles.names))
      left_out.push_back(resolve_column(one, roles.names, width, path, "ignore"));
    for (std::size_t i = 0; i < width; ++i)
      if (std::find(left_out.begin(), left_out.end(), i) == left_out.end()) roles.features.push_back(i);
  }
  for (const std::size_t column : roles.features)
    if (std::find(left_out.begin(), left_out.end(), column) != left_out.end())
      throw_failure(Kind::usage, "{}: {} is among features= and is to be learned too; take it out of one", path, roles.column(column));
  if (roles.features.empty()) throw_failure(Kind::usage, "{}: no column is left to learn from", path);
}

void find_shape(CsvRoles& roles, const SpecValues& v, std::size_t width, const Form* training) {
  roles.shape = wanted_shape(v, training);
  const std::string& values = v.word("values");
  const bool mnist = roles.shape.empty() && roles.features.size() == kMnistPixels && roles.label;
  if (values == "auto")
    roles.pixels = training != nullptr ? training->input == Input::pixels : roles.label && (roles.shape.size() == 3 || mnist);
  else
    roles.pixels = values == "pixels";
  if (roles.shape.empty() && roles.pixels && mnist) roles.shape = {1, 28, 28};
  if (roles.shape.empty() && !roles.pixels) roles.shape = {static_cast<std::int64_t>(roles.features.size())};
  if (roles.pixels ? roles.shape.size() != 3 : roles.shape.size() > 4)
    throw_failure(Kind::usage, "{}: shape={} cannot be of {}", v.text("file"), v.text("shape"),
                  roles.pixels ? "pixels, which have three sizes, as in 1x28x28 (channels x height x width)" : "floats: 1 to 4 sizes");
  const std::size_t learned = roles.targets.size() + (roles.label ? 1 : 0);
  if (elements(roles.shape) != roles.features.size())
    throw_failure(Kind::usage,
                  "{}: {} columns, {} of them features, {} to learn{}; shape {} wants {} columns; set shape= and label=", v.text("file"),
                  width, roles.features.size(), learned, roles.label ? fmt::format(", label in column {}", *roles.label) : "",
                  fmt::join(roles.shape, "x"), elements(roles.shape) + learned);
}

}  // namespace

std::string CsvRoles::column(std::size_t i) const {
  return i < names.size() ? fmt::format("column {} ('{}')", i, printable(names[i], 40)) : fmt::format("column {}", i);
}

CsvRoles csv_roles(std::string_view file, const SpecValues& v, const Form* training) {
  const FirstLines lines = first_lines(file, v);
  const std::size_t width = lines.first.size();
  CsvRoles roles;
  roles.header = has_header(lines, v, training);
  if (roles.header) roles.names = lines.first;
  find_learned(roles, v, width, training);
  find_features(roles, v, width, training);
  find_shape(roles, v, width, training);
  return roles;
}

}  // namespace cohort::data
