// What python/cohort/trainer.py is made of.
#include <torch/csrc/Exceptions.h>

#include "cohort/python/bind.h"
#include "cohort/python/train/python_trainer.h"
#include "cohort/python/train/settings.h"

namespace py = pybind11;

namespace cohort::python {
namespace {

PythonObject optional_object(const py::object& object) { return object.is_none() ? nullptr : share(object); }

std::unique_ptr<PythonTrainer> make_trainer(TrainConfig config, const py::kwargs& given) {
  TrainerParts parts{.config = std::move(config),
                     .name = py::cast<std::string>(given["name"]),
                     .model = share(given["model"]),
                     .train = share(given["train"]),
                     .test = optional_object(given["test"]),
                     .objective = {.loss = optional_object(given["loss"])}};
  for (const auto& block : given["blocks"]) {
    const auto [name, modules, call] = py::cast<std::tuple<std::string, py::list, py::object>>(block);
    BlockOfModel made{.name = name, .call = share(call)};
    for (const auto& module : modules) made.modules.push_back(share(py::reinterpret_borrow<py::object>(module)));
    parts.blocks.push_back(std::move(made));
  }
  for (const auto& [name, function] : py::cast<py::dict>(given["metrics"]))
    parts.objective.metrics.emplace_back(py::cast<std::string>(name), share(py::reinterpret_borrow<py::object>(function)));
  return std::make_unique<PythonTrainer>(std::move(parts));
}

py::dict to_dict(const RunResult& result) {
  const train::RunSummary& s = result.summary;
  py::dict metrics, all;
  for (const auto& metric : s.test.metrics) metrics[py::str(metric.name)] = metric.value;
  all["steps"] = s.steps;
  all["loss"] = s.train_loss;
  all["test_loss"] = s.test.samples > 0 ? py::object(py::float_(s.test.loss)) : py::none();
  all["metrics"] = metrics;
  all["seconds"] = s.seconds;
  all["samples_per_second"] = s.samples_per_second;
  all["skipped"] = s.skipped;
  all["folder"] = s.folder;
  all["checkpoint"] = result.checkpoint.empty() ? py::object(py::none()) : py::str(result.checkpoint);
  all["saved"] = s.saved;
  all["lost"] = s.saved ? "" : train::not_saved_text(s);
  all["ended_early"] = s.left;
  return all;
}

// None: this worker of an elastic job was asked to leave.
py::object run(PythonTrainer& trainer, int pipe, std::vector<int> signals, const py::object& after_step) {
  std::optional<RunResult> result;
  try {
    PythonObject call = share(after_step);
    const py::gil_scoped_release release;
    result = trainer.run({pipe, std::move(signals)}, std::move(call));
  } catch (const Failure& failure) {
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();  // Ctrl-C: it is the cause
    if (!trainer.slot().filled()) throw;
    const std::string note = fmt::format("rank {}: {}", trainer.rank(), failure.what());
    trainer.slot().restore();
    py::error_already_set error;
    if (py::hasattr(error.value(), "add_note")) error.value().attr("add_note")(note);  // from Python 3.11 on
    throw error;
  }
  return result ? py::object(to_dict(*result)) : py::none();
}

}  // namespace

void bind_trainer(py::module_& m) {
  py::class_<TrainConfig>(m, "_Settings")
      .def(py::init(&read_trainer_settings))
      .def("yaml", &settings_text)
      .def("folder", [](const TrainConfig& config) { return train::run_folder(config); });
  py::class_<PythonTrainer>(m, "_Trainer")
      .def(py::init(&make_trainer))
      .def("run", &run)
      .def("leave", &PythonTrainer::leave)
      .def_property_readonly("rank", &PythonTrainer::rank)
      .def_property_readonly("size", &PythonTrainer::size);
}

}  // namespace cohort::python
