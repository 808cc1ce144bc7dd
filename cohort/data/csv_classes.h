// Labels of a table as numbers: 0, 1, 2 .. as they stand, or words, numbered in alphabetical order, the same on every machine; of a test
// set as training numbered them. Owner: who reads the table. Threads: one. Failure: Kind::corrupt with line and column for a label that
// cannot be; Kind::usage for a column of so many different words that it is hardly a label.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/data/csv_roles.h"
#include "cohort/data/formats.h"

namespace cohort::data {

class CsvClasses {
 public:
  CsvClasses(const SpecValues& v, const Form* training);  // both borrowed
  void add(std::string_view field, const CsvReader& reader, const CsvRoles& roles);
  std::vector<std::int64_t> finish(Form& form);  // the labels; classes and names into the form

 private:
  void number_in_order(Form& form);

  const SpecValues& v_;
  const Form* training_;
  std::optional<bool> words_;                               // not known before the first label
  std::map<std::string, std::int64_t, std::less<>> known_;  // numbers in the order in which words came, until finish()
  std::vector<std::int64_t> labels_;
};

}  // namespace cohort::data
