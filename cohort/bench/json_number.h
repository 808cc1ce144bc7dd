// Numbers as the bench writes them into JSON: six significant digits, null for what is not known. Threads: any.
#pragma once
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace cohort::bench {

inline double rounded(double value) { return std::stod(fmt::format("{:.6g}", value)); }

inline nlohmann::ordered_json rounded_or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(rounded(*value)) : nlohmann::ordered_json(nullptr);
}

}  // namespace cohort::bench
