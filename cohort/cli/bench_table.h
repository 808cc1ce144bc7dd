// How a bench report looks: JSON lines for machines, a table with its own legend for people.
// Threads: pure functions to text.
#pragma once
#include <string>

#include "cohort/cli/bench_rounds.h"

namespace cohort::cli::bench {

std::string json_line(const Row& row);  // one object, no newline
std::string table(const Report& report, const BenchOptions& options);
std::string legend(const std::string& verb);  // one line for each column

}  // namespace cohort::cli::bench
