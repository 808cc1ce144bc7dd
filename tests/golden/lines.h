// golden.txt: lines of "name: text".
#pragma once
#include <string>

namespace cohort::golden {

// What the file says of this name; empty when it has no such line. With COHORT_GOLDEN_WRITE set it says `found` from now on.
std::string golden_line(const std::string& name, const std::string& found);

}  // namespace cohort::golden
