// For tests: how much longer this machine may take than an idle one. Limits in seconds are multiplied with it; `make test` and sanitizer
// runs set it (COHORT_TEST_SLOWDOWN).
#pragma once
#include <cstdlib>

namespace cohort {

inline double slowdown() {
  const char* const factor = std::getenv("COHORT_TEST_SLOWDOWN");
  return factor == nullptr ? 1.0 : std::atof(factor);
}

}  // namespace cohort
