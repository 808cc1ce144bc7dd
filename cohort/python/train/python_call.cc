#include "cohort/python/train/python_call.h"

#include <fmt/format.h>

#include "cohort/base/error.h"

namespace py = pybind11;

namespace cohort::python {
namespace {

// The innermost line of the traceback that is not torch's: "train.py:17".
std::string place_of(const py::object& trace) {
  std::string place;
  for (py::object at = trace; at && !at.is_none(); at = at.attr("tb_next")) {
    const auto file = py::cast<std::string>(at.attr("tb_frame").attr("f_code").attr("co_filename"));
    if (!place.empty() && file.find("/torch/") != std::string::npos) continue;
    place = fmt::format(" ({}:{})", file.substr(file.rfind('/') + 1), py::cast<int>(at.attr("tb_lineno")));
  }
  return place;
}

std::string text_of(const py::handle& value) {
  try {
    return py::cast<std::string>(py::str(value));
  } catch (const py::error_already_set&) {
    return "(its text cannot be read)";
  }
}

}  // namespace

PythonObject share(py::object object) {
  return {object.release().ptr(), [](PyObject* dropped) {
            if (dropped == nullptr || Py_IsInitialized() == 0) return;
            const py::gil_scoped_acquire gil;
            Py_DECREF(dropped);
          }};
}

std::string describe(const py::error_already_set& error) {
  const auto name = py::cast<std::string>(error.type().attr("__name__"));
  const std::string text = text_of(error.value());
  return fmt::format("{}{}{}{}", name, text.empty() ? "" : ": ", text, place_of(error.trace()));
}

void ExceptionSlot::fail(std::string_view where, py::error_already_set& error) {
  const std::string text = where.empty() ? describe(error) : fmt::format("{}: {}", where, describe(error));
  {
    py::object value = error.value();
    if (error.trace()) value.attr("__traceback__") = error.trace();
    const std::lock_guard lock(mutex_);
    if (!exception_) {
      exception_ = share(std::move(value));
      text_ = text;
    }
  }
  throw_failure(Kind::usage, "{}", text);
}

bool ExceptionSlot::filled() const {
  const std::lock_guard lock(mutex_);
  return exception_ != nullptr;
}

std::string ExceptionSlot::text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

bool ExceptionSlot::restore() {
  PythonObject exception;
  {
    const std::lock_guard lock(mutex_);
    exception = std::exchange(exception_, nullptr);
  }
  if (!exception) return false;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
  return true;
}

}  // namespace cohort::python
