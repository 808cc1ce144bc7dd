// What the columns of a table are for: features, a label or targets, or nothing. Found from the parameters of the data set `csv`, the first
// two lines of the file and, for a test set or one to predict, from what was trained on.
// Owner: values. Threads: any, pure functions over bytes that may be anything (fuzz/csv_fuzz.cc). Failure: Kind::usage naming the column
// and those that there are.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/spec.h"
#include "cohort/data/dataset.h"

namespace cohort::data {

struct CsvRoles {
  bool header = false;
  bool pixels = false;             // features are bytes of an image; else float values
  bool unlabelled = false;         // the columns to learn are not there
  std::vector<std::string> names;  // of all columns; empty without a header
  std::vector<std::size_t> features, targets;
  std::optional<std::size_t> label;
  std::vector<std::int64_t> shape;

  std::string column(std::size_t i) const;  // "column 3", "column 3 ('price')"
};

char csv_separator(const SpecValues& v);
CsvRoles csv_roles(std::string_view file, const SpecValues& v, const Form* training);

}  // namespace cohort::data
