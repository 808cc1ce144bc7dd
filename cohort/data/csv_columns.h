// Shared by the data sets that read CSV: their parameters, recognising a header, and whole numbers with a place in their errors.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cohort/base/spec.h"
#include "cohort/data/formats.h"

namespace cohort::data {

SpecParam csv_label_param();
SpecParam csv_header_param(std::string doc);
SpecParam csv_classes_param();

std::optional<std::int64_t> csv_number(std::string_view field);  // a whole number >= 0, nothing else in the field
std::int64_t csv_integer(std::string_view field, const CsvReader& reader, std::size_t column);  // Kind::corrupt otherwise
// header: yes, no, or auto: a header's label is no number.
bool is_header(std::string_view header, std::string_view first_label);

}  // namespace cohort::data
