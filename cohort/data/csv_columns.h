// Shared by the data sets that read CSV: their parameters, finding columns, and whole numbers with a place in their errors.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/spec.h"
#include "cohort/data/formats.h"

namespace cohort::data {

using Fields = std::vector<std::string>;

inline constexpr std::int64_t kNoLabel = -100;  // what a loss leaves out

SpecParam csv_header_param(std::string doc);
SpecParam csv_labels_param();
SpecParam csv_classes_param();

std::string_view without_byte_order_mark(std::string_view file);  // what spreadsheets put before UTF-8
Fields trimmed(const std::vector<std::string_view>& fields);

// A column by its number, from 0, or from the end: -1 is the last one.
std::optional<std::int64_t> column_number(std::string_view text);
// By name, where there are names, or by number; nothing: it is not there.
std::optional<std::size_t> find_column(const std::string& text, const Fields& names, std::size_t width);
// The same; Kind::usage with the columns that there are. key: the parameter that says it.
std::size_t resolve_column(const std::string& text, const Fields& names, std::size_t width, const std::string& path, std::string_view key);

std::optional<std::int64_t> csv_number(std::string_view field);  // a whole number >= 0, nothing else in the field
std::int64_t csv_integer(std::string_view field, const CsvReader& reader, std::size_t column);  // Kind::corrupt otherwise

}  // namespace cohort::data
