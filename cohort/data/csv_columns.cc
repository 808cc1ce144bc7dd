#include "cohort/data/csv_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort::data {

using Type = SpecParam::Type;

SpecParam csv_header_param(std::string doc) {
  return {.name = "header", .type = Type::word, .doc = std::move(doc), .preset = "auto", .words = {"auto", "yes", "no"}};
}

SpecParam csv_labels_param() {
  return {.name = "labels",
          .type = Type::word,
          .doc = "classes as numbers 0, 1, 2 .. or as words, numbered in alphabetical order; auto: by the first one",
          .preset = "auto",
          .words = {"auto", "numbers", "names"}};
}

SpecParam csv_classes_param() {
  return {.name = "classes",
          .type = Type::integer,
          .doc = "labels are 0 to classes - 1; 0: as the labels say",
          .preset = "0",
          .low = 0,
          .high = 1e9};
}

std::string_view without_byte_order_mark(std::string_view file) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  return file.starts_with(kByteOrderMark) ? file.substr(kByteOrderMark.size()) : file;
}

Fields trimmed(const std::vector<std::string_view>& fields) {
  Fields all;
  for (const std::string_view field : fields) all.emplace_back(trim(field));
  return all;
}

std::optional<std::int64_t> column_number(std::string_view text) {
  const bool from_end = text.starts_with('-');
  const auto number = csv_number(from_end ? text.substr(1) : text);
  if (!number || (from_end && *number == 0)) return std::nullopt;
  return from_end ? -*number : *number;
}

std::optional<std::size_t> find_column(const std::string& text, const Fields& names, std::size_t width) {
  if (const auto at = std::find(names.begin(), names.end(), text); at != names.end()) return at - names.begin();
  const auto number = column_number(text);
  if (!number) return std::nullopt;
  const std::int64_t column = *number < 0 ? *number + static_cast<std::int64_t>(width) : *number;
  if (column < 0 || column >= static_cast<std::int64_t>(width)) return std::nullopt;
  return static_cast<std::size_t>(column);
}

std::size_t resolve_column(const std::string& text, const Fields& names, std::size_t width, const std::string& path, std::string_view key) {
  if (const auto found = find_column(text, names, width)) return *found;
  if (names.empty() || column_number(text))
    throw_failure(Kind::usage, "{}: {}={}: there are {} columns, 0 to {}{}", path, key, printable(text, 60), width, width - 1,
                  names.empty() ? ", without names in a first line; set header=yes if there are" : "");
  const std::vector<std::string_view> known(names.begin(), names.end());
  throw_unknown(fmt::format("column of {} in {}=", path, key), printable(text, 60), known);
}

std::optional<std::int64_t> csv_number(std::string_view field) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc{} || end != field.data() + field.size() || value < 0) return std::nullopt;
  return value;
}

std::int64_t csv_integer(std::string_view field, const CsvReader& reader, std::size_t column) {
  if (const auto value = csv_number(field)) return *value;
  throw_failure(Kind::corrupt, "{}: column {} holds '{}', expected a label 0, 1, 2 ..", reader.place(), column, printable(field, 40));
}

}  // namespace cohort::data
