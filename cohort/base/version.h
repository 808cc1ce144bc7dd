// The version of Cohort that this program was built from, "0.1.0". Processes of one job must all be of the same.
// Threads: any. Failure: none.
#pragma once
#include <string_view>

namespace cohort {

std::string_view version();

}  // namespace cohort
