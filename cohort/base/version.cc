#include "cohort/base/version.h"

namespace cohort {

std::string_view version() { return COHORT_VERSION; }

}  // namespace cohort
