// Finding a row by name in a table of variants. A row is any struct with a `name`; tables are generated from one word per variant.
// Owner: the module that holds the table. Threads: any, tables never change. Failure: Kind::usage with the nearest and all known names.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "cohort/base/text.h"

namespace cohort {

template <class Row>
const Row* find_row_if_any(std::span<const Row* const> rows, std::string_view name) {
  for (const Row* row : rows)
    if (row->name == name) return row;
  return nullptr;
}

template <class Row>
std::vector<std::string_view> row_names(std::span<const Row* const> rows) {
  std::vector<std::string_view> names;
  for (const Row* row : rows) names.push_back(row->name);
  return names;
}

// what: the noun of the table, for the error: "all_reduce algorithm".
template <class Row>
const Row& find_row(std::span<const Row* const> rows, std::string_view name, std::string_view what) {
  if (const Row* row = find_row_if_any(rows, name)) return *row;
  throw_unknown(what, name, row_names(rows));
}

}  // namespace cohort
