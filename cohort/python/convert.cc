#include "cohort/python/convert.h"

#include <pybind11/pybind11.h>

#include "cohort/python/bind.h"

namespace py = pybind11;

namespace cohort::python {

void set_python_error(const Error& error) {
  if (error.kind == Kind::usage) return PyErr_SetString(PyExc_ValueError, error.what.c_str());
  const py::object type = py::module_::import("cohort.exceptions").attr("HorovodInternalError");
  PyErr_SetString(type.ptr(), error.what.c_str());
}

void bind_errors(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Failure& failure) {
      set_python_error(failure.error());
    }
  });
}

}  // namespace cohort::python
