// Converts failures to Python exceptions.
// Kind::usage is a ValueError; everything else is cohort.exceptions.HorovodInternalError, whose text names the rank concerned.
// Threads: with the GIL.
#pragma once
#include "cohort/base/error.h"

namespace cohort::python {

// Sets the Python error that `error` stands for.
void set_python_error(const Error& error);

}  // namespace cohort::python
