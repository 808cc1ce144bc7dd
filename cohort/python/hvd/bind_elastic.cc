// The functions of an elastic job for python/cohort/membership.py and elastic.py.
#include <torch/csrc/utils/pybind.h>

#include "cohort/python/bind.h"
#include "cohort/python/hvd/runtime.h"

namespace py = pybind11;

namespace cohort::python {
namespace {

// Waits without the GIL, checking for signals now and then. "" where the job has a fixed number of ranks.
std::string next_epoch() {
  for (;;) {
    auto next = HorovodRuntime::Next::later;
    {
      py::gil_scoped_release release;
      next = runtime().next_epoch(Deadline::in(kSignalPollInterval));
    }
    switch (next) {
      case HorovodRuntime::Next::fixed: return "";
      case HorovodRuntime::Next::epoch: return "epoch";
      case HorovodRuntime::Next::released: return "released";
      case HorovodRuntime::Next::over: return "over";
      case HorovodRuntime::Next::later: break;
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

}  // namespace

void bind_elastic(py::module_& m) {
  using Free = py::call_guard<py::gil_scoped_release>;
  m.def("next_epoch", &next_epoch);
  m.def(
      "leave_epoch", [] { runtime().leave_epoch(); }, Free());
  m.def("elastic", [] { return runtime().elastic(); });
  m.def("between_epochs", [] { return runtime().between_epochs(); });
  m.def("commit_counts", [] { return runtime().commit_counts(); });
  m.def("state_synced", [] { runtime().state_synced(); });
  m.def("vote", [](bool wish, const std::string& what) { return runtime().vote(wish, what); });
  m.def("decide", [] { runtime().decide(); });
  m.def("end_job", [] { runtime().end_job(); });
  m.def(
      "end_at_exit", [](bool well) { runtime().end_at_exit(well); }, Free());
  m.def("set_elastic_run", [](bool on) { runtime().set_elastic_run(on); });
  m.def("ask_to_leave", [](const std::string& why) { runtime().ask_to_leave(why); });
}

}  // namespace cohort::python
