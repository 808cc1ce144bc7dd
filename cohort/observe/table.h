// The table at the end of a run: columns that line up, numbers to the right, units under the names.
//   rank    images/s    wait
//                          %
//   ----  ----------  ------
//      0      32 104     4.1
// Owner: values. Threads: any. Failure: Kind::usage for a row with more cells than there are columns.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cohort::observe {

enum class Align : std::uint8_t { right, left };

struct Column {
  std::string name;
  std::string unit{};
  Align align = Align::right;
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows{};  // cells as text; a short row has empty cells at its end

  void add(std::vector<std::string> cells);
};

std::string table_text(const Table& table);  // for a terminal; control bytes in cells are shown, not obeyed

// Numbers as cells: four significant digits, thousands separated by a thin space: 0.04123, 41.23, 32 104. "–" for nan, "∞" for inf.
std::string cell(double value);
std::string cell(std::int64_t value);
std::string percent_cell(double share);  // 0.0412 is "4.1"

}  // namespace cohort::observe
