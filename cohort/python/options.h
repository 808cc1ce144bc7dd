// The settings of COHORT_TRANSPORT, COHORT_TIMEOUT, COHORT_ALGORITHM ..., as cohort::init reads them.
// Owner: values. Threads: any. Failure: Kind::usage naming the variable.
#pragma once
#include "cohort/job/job.h"

namespace cohort::python {

JobOptions options_from_environment();

}  // namespace cohort::python
