#include "cohort/data/csv_columns.h"

#include <charconv>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort::data {

using Type = SpecParam::Type;

SpecParam csv_label_param() {
  return {.name = "label", .type = Type::integer, .doc = "column of the label, from 0", .preset = "0", .low = 0, .high = 1e9};
}

SpecParam csv_header_param(std::string doc) {
  return {.name = "header", .type = Type::word, .doc = std::move(doc), .preset = "auto", .words = {"auto", "yes", "no"}};
}

SpecParam csv_classes_param() {
  return {.name = "classes",
          .type = Type::integer,
          .doc = "labels are 0 to classes - 1; 0: as the labels say",
          .preset = "0",
          .low = 0,
          .high = 1e9};
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

bool is_header(std::string_view header, std::string_view first_label) {
  return header == "auto" ? !csv_number(first_label) : header == "yes";
}

}  // namespace cohort::data
