// How a bench report looks: JSON lines for machines, a table with its own legend for people.
// Threads: pure functions to text.
#pragma once
#include <string>

#include "cohort/bench/rounds.h"

namespace cohort::bench {

std::string json_line(const Row& row);  // one object, no newline
std::string table(const Report& report, const BenchOptions& options);
std::string legend(const std::string& collective);  // one line for each column

}  // namespace cohort::bench
