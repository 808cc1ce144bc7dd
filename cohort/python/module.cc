// The extension module cohort._core.
#include <pybind11/pybind11.h>

#include "cohort/python/bind.h"

PYBIND11_MODULE(_core, m) {
  m.doc() = "Cohort's C++ core for Python: what cohort.torch and the torch.distributed backend 'cohort' are built on.";
  m.attr("__version__") = COHORT_VERSION;
  m.attr("torch_version") = COHORT_TORCH_VERSION;  // what it was built against
  cohort::python::bind_errors(m);
  cohort::python::bind_runtime(m);
  cohort::python::bind_elastic(m);
  cohort::python::bind_process_group(m);
  cohort::python::bind_codec(m);
  cohort::python::bind_trainer(m);
}
