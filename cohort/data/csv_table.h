// A table as a data set: features and a class or targets in each line (csv_roles.h says which columns).
//   csv(file=flowers.csv, label=species)                    12 float features, the classes are the words in column species
//   csv(file=houses.csv, target=price, missing=mean)        regression; empty fields become their column's mean
//   csv(file=mnist.csv, shape=1x28x28)                      label and pixels 0 to 255
// Classes that are words are numbered in alphabetical order. A test set, and a file to predict, is opened with what was trained on: it has
// the training set's classes, its means for missing values and its order of columns, and may lack the columns to learn.
// Threads: any, pure functions over bytes that may be anything (fuzz/csv_fuzz.cc). Failure: Kind::corrupt with line, byte and column for
// bad fields; Kind::usage for columns that are not there.
#pragma once
#include <memory>
#include <string_view>

#include "cohort/base/spec.h"
#include "cohort/data/dataset.h"

namespace cohort::data {

const SpecSchema& csv_schema();
std::shared_ptr<const Dataset> read_csv(std::string_view file, const SpecValues& v, const Form* training = nullptr);

}  // namespace cohort::data
