// Calls from C++ into Python, from any thread: the GIL, and what becomes of an exception.
//   ExceptionSlot slot;
//   at::Tensor y = slot.call("forward of 'Net'", [&] { return as_tensor(module(x)); });   // has the GIL inside
//   ... catch (...) { slot.restore(); }                                                   // the user's own exception, with its traceback
// A Python exception leaves call() as a Failure (Kind::usage) whose text has the exception's type, text, file and line, so that it can
// travel to other ranks; the exception itself is kept, the first one only, for the thread that asked for the work.
// Owner: values that hold PythonObjects; they may be dropped by any thread. Threads: any, with or without the GIL.
#pragma once
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace cohort::python {

// A reference that may be dropped without the GIL.
using PythonObject = std::shared_ptr<PyObject>;
PythonObject share(pybind11::object object);  // with the GIL
inline pybind11::handle handle_of(const PythonObject& object) { return {object.get()}; }

// "ValueError: no such image (train.py:17)". With the GIL.
std::string describe(const pybind11::error_already_set& error);

class ExceptionSlot {
 public:
  // where: what was called, for the text: "the loss", "forward of 'Net'"; empty: the text is the exception's alone.
  template <class F>
  auto call(std::string_view where, F&& f) -> decltype(f()) {
    const pybind11::gil_scoped_acquire gil;
    try {
      return std::forward<F>(f)();
    } catch (pybind11::error_already_set& error) {
      fail(where, error);
    }
  }
  // Keeps the exception and throws the Failure. With the GIL.
  [[noreturn]] void fail(std::string_view where, pybind11::error_already_set& error);
  bool filled() const;
  std::string text() const;  // of the Failure
  // Sets the exception that is kept as Python's current one; false: there is none. With the GIL.
  bool restore();

 private:
  mutable std::mutex mutex_;
  PythonObject exception_;  // guarded by mutex_
  std::string text_;        // guarded by mutex_
};

}  // namespace cohort::python
