// The functions of the c10d backend for python/cohort/distributed.py.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "cohort/python/bind.h"
#include "cohort/python/c10d/allocator.h"
#include "cohort/python/c10d/process_group.h"
#include "cohort/python/options.h"

namespace py = pybind11;

namespace cohort::python {
namespace {

// A timeout that the program chose takes precedence over COHORT_TIMEOUT, which does over torch's own.
JobOptions options_with(double timeout, bool chosen) {
  JobOptions options = options_from_environment();
  const char* const variable = std::getenv("COHORT_TIMEOUT");
  if (chosen || variable == nullptr || *variable == 0) options.timeout = Seconds{timeout};
  options.start_timeout = Seconds{timeout};
  return options;
}

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, double timeout, bool chosen,
                                         std::string name, std::string address, std::vector<int64_t> global_ranks) {
  StoreRendezvous how{store, rank, size, std::move(name), std::move(address), raising([&] { return options_with(timeout, chosen); })};
  return c10::make_intrusive<ProcessGroupCohort>(std::move(how), std::move(global_ranks));
}

c10::intrusive_ptr<c10d::Work> reduce_bucket(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                             const std::shared_ptr<GradientCodec>& codec, const std::vector<std::string>& names,
                                             const std::vector<Shape>& shapes, const at::Tensor& bucket, double weight, double unit) {
  const auto backend = c10::dynamic_intrusive_pointer_cast<ProcessGroupCohort>(group->getBackend(c10::DeviceType::CPU));
  if (!backend)
    throw_failure(Kind::usage, "the hooks of cohort are for process groups of backend cohort, not {}; init_process_group(\"cohort\")",
                  group->getBackendName());
  return backend->allreduce_coded(bucket, names, shapes, codec, weight, unit);
}

at::Tensor shared_tensor(const std::vector<int64_t>& sizes, at::ScalarType type) {
  return raising([&] { return SharedMemoryPool::instance().tensor(sizes, type); });
}

py::dict pool_stats() {
  const auto stats = SharedMemoryPool::instance().stats();
  py::dict all;
  all["in_use"] = stats.in_use;
  all["cached"] = stats.cached;
  all["peak"] = stats.peak;
  return all;
}

}  // namespace

void bind_process_group(py::module_& m) {
  m.def("_create_process_group", &create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("chosen"),
        py::arg("name"), py::arg("address"), py::arg("global_ranks"), py::call_guard<py::gil_scoped_release>());
  m.def("_reduce_bucket", &reduce_bucket, py::arg("group"), py::arg("codec"), py::arg("names"), py::arg("shapes"), py::arg("bucket"),
        py::arg("weight"), py::arg("unit"), py::call_guard<py::gil_scoped_release>());
  m.def("_shutdown_process_groups", &shutdown_all_groups);
  m.def("_shared_tensor", &shared_tensor, py::arg("sizes"), py::arg("dtype"));
  m.def("_shared_pool_stats", &pool_stats);
  m.def("_serve_large_tensors", &serve_large_tensors, py::arg("threshold"));
}

}  // namespace cohort::python
