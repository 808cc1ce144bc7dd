// Fields of a table as numbers. Threads: any, pure functions over bytes that may be anything.
#pragma once
#include <optional>
#include <string_view>

namespace cohort::data {

bool csv_missing(std::string_view field);                // empty, NA, N/A, nan, null, none or ?, in any case
std::optional<float> csv_float(std::string_view field);  // a finite number of float32, blanks around it allowed; nothing else

}  // namespace cohort::data
