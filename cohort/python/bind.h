// What the module _core is made of: each function adds one part of the package to it.
// Threads: called once, at import, with the GIL. To add a part: a bind_*.cc, a line here, a call in module.cc, its lines in _core.pyi.
#pragma once
#include "cohort/base/deadline.h"

namespace pybind11 {
class module_;
}

namespace cohort::python {

inline constexpr Seconds kSignalPollInterval{0.05};  // how long Control-C may have to wait

void bind_errors(pybind11::module_& m);         // Failure becomes ValueError or HorovodInternalError
void bind_runtime(pybind11::module_& m);        // what cohort.torch calls
void bind_elastic(pybind11::module_& m);        // what hvd.elastic calls
void bind_process_group(pybind11::module_& m);  // torch.distributed's backend "cohort"
void bind_codec(pybind11::module_& m);          // codecs for cohort.torch and DDP
void bind_trainer(pybind11::module_& m);        // what cohort.Trainer calls

}  // namespace cohort::python
