#include "cohort/python/options.h"

#include <cstdlib>

#include "cohort/base/config.h"
#include "cohort/collective/cost/calibration_file.h"

namespace cohort::python {

JobOptions options_from_environment() {
  JobOptions options;
  Config(options).read_environment("COHORT_", [](const char* name) -> const char* {
    const char* const value = std::getenv(name);
    return value == nullptr || *value == 0 ? nullptr : value;  // VARIABLE= is unset
  });
  if (options.calibration.empty()) options.calibration = collective::usual_calibration_folder();
  return options;
}

}  // namespace cohort::python
