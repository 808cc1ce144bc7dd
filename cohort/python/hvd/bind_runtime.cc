#include <torch/csrc/utils/pybind.h>

#include "cohort/base/error.h"
#include "cohort/nn/tensor.h"
#include "cohort/python/bind.h"
#include "cohort/python/codec/gradient_codec.h"
#include "cohort/python/hvd/runtime.h"
#include "cohort/python/options.h"

namespace py = pybind11;

namespace cohort::python {
namespace {

using Splits = std::optional<std::vector<std::int64_t>>;

// The failure of an operation is no error of an argument: ranks that disagree cannot know which of them is wrong.
std::optional<OperationResult> take_result(HandleId id) {
  try {
    return runtime().take(id);
  } catch (const Failure& failure) {
    Error error = failure.error();
    if (error.kind == Kind::usage) error.kind = Kind::aborted;
    throw Failure{error};
  }
}

// Waits without the GIL, checking for signals now and then. None for an unknown handle.
py::object wait(HandleId id) {
  const std::uint64_t before = runtime().shutdowns();
  const bool known = runtime().known(id);
  for (bool done = false; !done;) {
    {
      py::gil_scoped_release release;
      done = runtime().help(id, Deadline::in(kSignalPollInterval));
    }
    if (!done && PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  auto result = take_result(id);
  if (!result && known && runtime().shutdowns() != before)
    throw_failure(Kind::aborted,
                  "hvd.shutdown() was called on this rank, by another thread, while this one waited for an operation; let "
                  "all threads end their operations first");
  if (!result) return py::none();
  return py::make_tuple(std::move(result->tensors), std::move(result->rows), result->last_joined);
}

HandleId allreduce_coded(const std::shared_ptr<GradientCodec>& codec, std::vector<std::string> names, const Tensors& tensors, int op,
                         double weight, double unscale, const std::string& name, int set) {
  Request request = all_reduce(tensors, tensors, {static_cast<Reduce>(op)});
  CodedUnit unit{.names = std::move(names), .op = request.operation.op, .weight = weight, .unit = unscale};
  for (const at::Tensor& tensor : tensors) {
    unit.gradients.push_back(nn::piece(tensor));
    unit.shapes.push_back(tensor.sizes().vec());
  }
  codec->check(unit);
  request.operation.codec = codec->spec();
  request.operation.reduce = [codec, unit = std::move(unit)](collective::Communicator& comm, const collective::Call& call) {
    codec->reduce(comm, unit, call);
  };
  return runtime().submit(set, std::move(request), name);
}

InitOptions settings(std::vector<int> ranks, std::vector<std::vector<int>> sets, const py::kwargs& options) {
  const JobOptions job = options_from_environment();
  InitOptions s{std::move(ranks), std::move(sets), {}};
  s.queue.warn_after = job.warn_after;
  s.queue.shutdown_after = job.timeout;
  s.queue.limit_name = "COHORT_TIMEOUT";
  for (const auto& [key, value] : options) {
    const auto option = py::cast<std::string>(key);
    if (option == "fusion_bytes") s.queue.fusion_bytes = py::cast<std::size_t>(value);
    if (option == "cache_names") s.queue.cache_names = py::cast<std::size_t>(value);
    if (option == "warn_after") s.queue.warn_after = Seconds{py::cast<double>(value)};
    if (option == "shutdown_after") {
      s.queue.shutdown_after = Seconds{py::cast<double>(value)};
      s.queue.limit_name = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS";
    }
  }
  return s;
}

void bind_world(py::module_& m) {
  using Free = py::call_guard<py::gil_scoped_release>;
  m.def(
      "init",
      [](std::vector<int> ranks, std::vector<std::vector<int>> sets, const py::kwargs& options) {
        const InitOptions chosen = settings(std::move(ranks), std::move(sets), options);
        py::gil_scoped_release release;
        return runtime().init(chosen);
      },
      py::arg("ranks") = std::vector<int>{}, py::arg("sets") = std::vector<std::vector<int>>{});
  m.def(
      "shutdown", [] { runtime().shutdown(); }, Free());
  m.def("is_initialized", [] { return runtime().initialized(); });
  m.def("rank", [] { return runtime().rank(); });
  m.def("size", [] { return runtime().size(); });
  m.def("local_rank", [] { return runtime().local_rank(); });
  m.def("local_size", [] { return runtime().local_size(); });
  m.def("hosts", [] { return runtime().hosts(); });
  m.def(
      "add_set", [](const std::vector<int>& ranks) { return runtime().add_set(ranks); }, Free());
  m.def(
      "remove_set", [](int id) { return runtime().remove_set(id); }, Free());
  m.def(
      "start_timeline", [](const std::string& path, bool cycles) { runtime().start_timeline(path, cycles); }, Free());
  m.def(
      "stop_timeline", [] { runtime().stop_timeline(); }, Free());
  m.def("sets", [] { return runtime().sets(); });
}

void bind_operations(py::module_& m) {
  m.def("allreduce",
        [](const Tensors& in, const std::optional<Tensors>& out, const std::string& name, int op, double pre, double post, int set) {
          return runtime().submit(set, all_reduce(in, out, {static_cast<Reduce>(op), pre, post}), name);
        });
  m.def("allreduce_coded", &allreduce_coded);
  m.def("broadcast", [](const at::Tensor& in, const std::optional<at::Tensor>& out, int root, const std::string& name, int set) {
    return runtime().submit(set, broadcast(in, out, Rank{root}), name);
  });
  m.def("allgather", [](const Tensors& in, const std::string& name, int set) { return runtime().submit(set, all_gather(in), name); });
  m.def("alltoall", [](const at::Tensor& in, const Splits& splits, const std::string& name, int set) {
    const auto where = runtime().member(set, "alltoall");
    return runtime().submit(set, all_to_all(in, splits, where->queue->size()), name);
  });
  m.def("reducescatter", [](const Tensors& in, const std::string& name, int op, double pre, double post, int set) {
    const auto where = runtime().member(set, "reducescatter");
    return runtime().submit(set, reduce_scatter(in, {static_cast<Reduce>(op), pre, post}, where->mine, where->queue->size()), name);
  });
  m.def("barrier", [](int set) { return runtime().submit(set, barrier(), ""); });
  m.def("join", [] { return runtime().join(); });
  m.def("poll", [](HandleId id) { return runtime().poll(id); });
  m.def("wait", &wait);
}

}  // namespace

void bind_runtime(py::module_& m) {
  bind_world(m);
  bind_operations(m);
}

}  // namespace cohort::python
