// What COHORT_TRANSPORT, COHORT_TIMEOUT, COHORT_ALGORITHM ... say, as cohort::init reads them.
// Owner: values. Threads: any. Failure: Kind::usage naming the variable.
#pragma once
#include "cohort/train/job.h"

namespace cohort::python {

JobOptions options_from_environment();

}  // namespace cohort::python
