// What python/cohort/membership.py and elastic.py see of an elastic job.
#include <torch/csrc/utils/pybind.h>

#include "cohort/python/bind.h"
#include "cohort/python/engine.h"

namespace py = pybind11;

namespace cohort::python {
namespace {

// Waits without the GIL, looking for signals now and then. "" where the job has a fixed number of ranks.
std::string next_epoch() {
  for (;;) {
    auto next = Engine::Next::later;
    {
      py::gil_scoped_release release;
      next = engine().next_epoch(Deadline::in(kLookUp));
    }
    switch (next) {
      case Engine::Next::fixed: return "";
      case Engine::Next::epoch: return "epoch";
      case Engine::Next::released: return "released";
      case Engine::Next::over: return "over";
      case Engine::Next::later: break;
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

}  // namespace

void bind_elastic(py::module_& m) {
  using Free = py::call_guard<py::gil_scoped_release>;
  m.def("next_epoch", &next_epoch);
  m.def(
      "leave_epoch", [] { engine().leave_epoch(); }, Free());
  m.def("elastic", [] { return engine().elastic(); });
  m.def("between", [] { return engine().between(); });
  m.def("finishes", [] { return engine().finishes(); });
  m.def("healed", [] { engine().healed(); });
  m.def("vote", [](bool wish, const std::string& what) { return engine().vote(wish, what); });
  m.def("decide", [] { engine().decide(); });
  m.def("end_job", [] { engine().end_job(); });
  m.def(
      "end_at_exit", [](bool well) { engine().end_at_exit(well); }, Free());
  m.def("guide", [](bool on) { engine().guide(on); });
  m.def("ask_to_leave", [](const std::string& why) { engine().ask_to_leave(why); });
}

}  // namespace cohort::python
