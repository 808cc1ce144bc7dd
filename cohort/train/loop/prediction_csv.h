// Predictions as lines of CSV (RFC 4180): what a file holds is as the training set and the table had it; on a terminal control codes in
// names of classes, columns and files are shown, not obeyed (base/terminal_text.h). Owner: none. Threads: any. Failure: none.
#pragma once
#include <string>
#include <vector>

#include "cohort/train/loop/predictor.h"

namespace cohort::train {

enum class CsvFor { file, terminal };

// targets: names of what a regression predicts; empty: classes.
std::string csv_heading(const std::vector<std::string>& targets, bool folder, bool labelled, CsvFor reader);
std::string csv_line(const Prediction& prediction, CsvFor reader);

}  // namespace cohort::train
