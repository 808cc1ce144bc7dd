#include <torch/csrc/utils/pybind.h>

#include "cohort/python/bind.h"
#include "cohort/python/engine.h"

namespace py = pybind11;

namespace cohort::python {
namespace {

using Splits = std::optional<std::vector<std::int64_t>>;

// Whatever an operation ends with is no error of an argument: ranks that disagree cannot know which of them is wrong.
std::optional<Landing> taken(HandleId id) {
  try {
    return engine().take(id);
  } catch (const Failure& failure) {
    Error error = failure.error();
    if (error.kind == Kind::usage) error.kind = Kind::aborted;
    throw Failure{error};
  }
}

// Waits without the GIL, looking for signals now and then. None for a handle that stands for nothing.
py::object wait(HandleId id) {
  for (bool done = false; !done;) {
    {
      py::gil_scoped_release release;
      done = engine().help(id, Deadline::in(kLookUp));
    }
    if (!done && PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  auto landing = taken(id);
  if (!landing) return py::none();
  return py::make_tuple(std::move(landing->tensors), std::move(landing->rows), landing->last_joined);
}

EngineSettings settings(std::vector<int> ranks, std::vector<std::vector<int>> sets, const py::kwargs& options) {
  EngineSettings s{std::move(ranks), std::move(sets), {}};
  for (const auto& [key, value] : options) {
    const auto word = py::cast<std::string>(key);
    if (word == "fusion_bytes") s.queue.fusion_bytes = py::cast<std::size_t>(value);
    if (word == "cache_names") s.queue.cache_names = py::cast<std::size_t>(value);
    if (word == "warn_after") s.queue.warn_after = Seconds{py::cast<double>(value)};
    if (word == "shutdown_after") s.queue.shutdown_after = Seconds{py::cast<double>(value)};
  }
  return s;
}

void bind_world(py::module_& m) {
  using Free = py::call_guard<py::gil_scoped_release>;
  m.def(
      "init",
      [](std::vector<int> ranks, std::vector<std::vector<int>> sets, const py::kwargs& options) {
        const EngineSettings chosen = settings(std::move(ranks), std::move(sets), options);
        py::gil_scoped_release release;
        return engine().init(chosen);
      },
      py::arg("ranks") = std::vector<int>{}, py::arg("sets") = std::vector<std::vector<int>>{});
  m.def(
      "shutdown", [] { engine().shutdown(); }, Free());
  m.def("is_initialized", [] { return engine().initialized(); });
  m.def("rank", [] { return engine().rank(); });
  m.def("size", [] { return engine().size(); });
  m.def("local_rank", [] { return engine().local_rank(); });
  m.def("local_size", [] { return engine().local_size(); });
  m.def("hosts", [] { return engine().hosts(); });
  m.def(
      "add_set", [](const std::vector<int>& ranks) { return engine().add_set(ranks); }, Free());
  m.def(
      "remove_set", [](int id) { return engine().remove_set(id); }, Free());
  m.def(
      "start_timeline", [](const std::string& path, bool cycles) { engine().start_timeline(path, cycles); }, Free());
  m.def(
      "stop_timeline", [] { engine().stop_timeline(); }, Free());
  m.def("sets", [] { return engine().sets(); });
}

void bind_operations(py::module_& m) {
  m.def("allreduce",
        [](const Tensors& in, const std::optional<Tensors>& out, const std::string& name, int op, double pre, double post, int set) {
          return engine().submit(set, all_reduce(in, out, {static_cast<Reduce>(op), pre, post}), name);
        });
  m.def("broadcast", [](const at::Tensor& in, const std::optional<at::Tensor>& out, int root, const std::string& name, int set) {
    return engine().submit(set, broadcast(in, out, Rank{root}), name);
  });
  m.def("allgather", [](const Tensors& in, const std::string& name, int set) { return engine().submit(set, all_gather(in), name); });
  m.def("alltoall", [](const at::Tensor& in, const Splits& splits, const std::string& name, int set) {
    const auto where = engine().member(set, "alltoall");
    return engine().submit(set, all_to_all(in, splits, where->queue->size()), name);
  });
  m.def("reducescatter", [](const Tensors& in, const std::string& name, int op, double pre, double post, int set) {
    const auto where = engine().member(set, "reducescatter");
    return engine().submit(set, reduce_scatter(in, {static_cast<Reduce>(op), pre, post}, where->mine, where->queue->size()), name);
  });
  m.def("barrier", [](int set) { return engine().submit(set, barrier(), ""); });
  m.def("join", [] { return engine().join(); });
  m.def("poll", [](HandleId id) { return engine().poll(id); });
  m.def("wait", &wait);
}

}  // namespace

void bind_engine(py::module_& m) {
  bind_world(m);
  bind_operations(m);
}

}  // namespace cohort::python
