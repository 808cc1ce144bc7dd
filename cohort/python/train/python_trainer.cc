#include "cohort/python/train/python_trainer.h"

#include <c10/util/Exception.h>
#include <fmt/ranges.h>
#include <torch/csrc/Exceptions.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/checkpoint/store.h"
#include "cohort/job/run_on_all.h"
#include "cohort/python/hvd/runtime.h"
#include "cohort/python/options.h"
#include "cohort/train/loop/elastic_trainer.h"
#include "cohort/train/loop/state_io.h"
#include "cohort/train/loop/trainer.h"

namespace py = pybind11;

namespace cohort::python {
namespace {

int cores_here() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

constexpr std::string_view kEnded = " ended the run: ";

// What another rank said in tell_others(), without the operation that it came to.
std::string without_operation(const std::string& text) {
  const auto at = text.find(kEnded);
  const auto first = at == std::string::npos ? at : text.rfind("rank ", at);
  return first == std::string::npos ? text : text.substr(first);
}

void write_status(const train::RankStatus& status) { log_line(Level::info, status.text()); }

}  // namespace

train::ModelAndData PythonTrainer::open() {
  const py::gil_scoped_acquire gil;
  const auto training_set = dataset_of(parts_.train, "the training set", slot_);
  const auto finish = [training_set](const at::Tensor& outputs) { return training_set->as_rows(outputs); };
  const auto make = [this, finish] {
    const py::gil_scoped_acquire again;
    return parts_.objective.loss ? model_of(parts_.model, parts_.blocks, slot_, {}) : model_of(parts_.model, parts_.blocks, slot_, finish);
  };
  train::ModelAndData own{.model = make(), .train = training_set, .name = parts_.name};
  own.objective = objective_of(parts_.objective, *training_set, slot_);
  own.make_model = [make, values = elastic_ ? values_of(own.model) : std::vector<at::Tensor>{}] {
    nn::Model again = make();
    set_values(again, values);
    return again;
  };
  if (!parts_.test) return own;
  const auto test_set = dataset_of(parts_.test, "the test set", slot_);
  if (test_set->label_sizes() != training_set->label_sizes() || test_set->form().ids != training_set->form().ids)
    throw_failure(Kind::usage, "labels of the test set are of size [{}], those of the training set of [{}]: both must be alike",
                  fmt::join(test_set->label_sizes(), ", "), fmt::join(training_set->label_sizes(), ", "));
  own.test = test_set;
  return own;
}

// Of whatever ends a run. Exceptions of Python functions in backward (torch.autograd.Function, hooks) come as torch's python_error.
Error PythonTrainer::error_of(const std::exception_ptr& thrown) {
  try {
    try {
      std::rethrow_exception(thrown);
    } catch (python_error& error) {
      slot_.call("backward", [&] {
        error.restore();
        throw py::error_already_set();
      });
    }
  } catch (const Failure& failure) {
    return {failure.kind(), without_operation(failure.error().what), failure.error().rank};
  } catch (const c10::Error& error) {  // without the list of C++ frames
    return {Kind::usage, error.what_without_backtrace(), kNoRank};
  } catch (const std::exception& error) {
    return {Kind::system, error.what(), kNoRank};
  }
  return {};
}

// Before the Trainer goes, whose threads may wait for other ranks.
void PythonTrainer::tell_others(collective::Communicator& comm, const Error& error) const {
  if (job::reported_by_another_rank(error, Rank{rank_}) || error.what.find(kEnded) != std::string::npos) return;
  comm.abort({Kind::aborted, fmt::format("rank {}{}{}", rank_.load(), kEnded, error.what), Rank{rank_}});
}

void PythonTrainer::set_leave(std::function<void(const std::string&)> call) {
  const std::lock_guard lock(mutex_);
  leave_ = std::move(call);
  if (leave_ && !leaves_.empty()) leave_(std::exchange(leaves_, ""));
}

void PythonTrainer::leave(const std::string& why) {
  const std::lock_guard lock(mutex_);
  leave_ ? leave_(why) : void(leaves_ = why.empty() ? "a call of leave()" : why);
}

void PythonTrainer::stepped(train::TrainLoop& loop, Rank rank) {
  rank_ = rank.value;
  size_ = loop.share().ranks;
  last_loss_ = loop.last_loss();
  slot_.call("the function given to after_step()", [&] { handle_of(after_step_)(loop.step(), loop.position().epoch, loop.last_loss()); });
}

RunResult PythonTrainer::result_of(train::RunSummary summary) const {
  RunResult result{std::move(summary), ""};
  result.summary.train_loss = last_loss_;  // on every rank
  const std::string folder = checkpoints();
  const auto listed = access(folder.c_str(), R_OK) == 0 ? checkpoint::Store(folder).list() : std::vector<checkpoint::Listed>{};
  if (!listed.empty()) result.checkpoint = listed.front().path;
  return result;
}

std::string PythonTrainer::checkpoints() const { return train::run_folder(parts_.config) + "/checkpoints"; }

// Where no rank has all of the parameters: they are on disk.
void PythonTrainer::load_newest(const nn::Model& model) const {
  const auto newest = checkpoint::Store(checkpoints()).newest().checkpoint;
  if (!newest) throw_failure(Kind::system, "the run ended without a checkpoint, and no rank has all of its parameters; see above");
  train::load_model(model, *newest);
}

RunResult PythonTrainer::train_on(collective::Communicator& comm, TrainConfig config, int ranks_here, const SignalPipe& signals) {
  rank_ = comm.rank().value;
  size_ = comm.size();
  std::optional<nn::Model> model;
  try {
    std::optional<train::ModelAndData> own;
    job::run_on_all(comm, "model and data", [&] { own = open(); });
    model = own->model;
    train::Trainer trainer(comm, std::move(config), cores_here(), ranks_here, *std::move(own), &status_);
    trainer.after_step([this](train::TrainLoop& loop) { stepped(loop, Rank{rank_}); });
    const InterruptWatcher watcher(signals, {.interrupt =
                                                 [&] {
                                                   comm.abort({Kind::aborted, "interrupted (SIGINT)", Rank{rank_}});
                                                 },
                                             .leave = [&](const std::string& why) { trainer.leave(why); },
                                             .status = [&] { write_status(status_); }});
    const LeaveGuard guard(*this, [&](const std::string& why) { trainer.leave(why); });
    try {
      train::RunSummary summary = trainer.run();
      trainer.loop().engine().make_whole();
      release_parameters(*model);
      return result_of(std::move(summary));
    } catch (...) {
      const Error error = error_of(std::current_exception());
      tell_others(comm, error);
      throw Failure{error};
    }
  } catch (...) {
    if (model) release_parameters(*model);
    const Error error = error_of(std::current_exception());
    tell_others(comm, error);
    throw Failure{error};
  }
}

RunResult PythonTrainer::run_fixed(const SignalPipe& signals) {
  TrainConfig config = parts_.config;
  if (runtime().initialized()) {  // the ranks of hvd.init(), on connections of their own
    const auto comm = runtime().split_all();
    return train_on(*comm, std::move(config), runtime().local_size(), signals);
  }
  status_.set_phase("in the rendezvous with the other ranks");
  JobOptions options;
  options.backend = config.backend;
  options.deterministic = config.deterministic;
  Job job = cohort::init(options);
  if (config.threads == 0) config.threads = job.suggested_threads();
  return train_on(job.comm(), std::move(config), job.local_size(), signals);
}

std::optional<RunResult> PythonTrainer::run_elastic(elastic::ElasticWorkerOptions worker, const SignalPipe& signals) {
  if (runtime().elastic() || runtime().between_epochs())
    throw_failure(Kind::usage, "cohort.Trainer joins the elastic job itself: call it in a program without hvd.init()");
  std::optional<nn::Model> model;
  try {
    train::ModelAndData own = open();
    model = own.model;
    const auto make_model = own.make_model;
    train::ElasticSettings settings;
    settings.job = options_from_environment();
    settings.threads = settings.job.threads;
    settings.after_step = [this](train::TrainLoop& loop, Rank rank) { stepped(loop, rank); };
    std::optional<train::RunSummary> summary;
    {
      train::ElasticTrainer trainer(std::move(worker), parts_.config, std::move(settings), status_, std::move(own));
      const auto leaves = [&](const std::string& why) { trainer.leave(why); };
      const InterruptWatcher watcher(signals,
                                     {.interrupt = [&] { leaves("SIGINT"); }, .leave = leaves, .status = [&] { write_status(status_); }});
      const LeaveGuard guard(*this, leaves);
      summary = trainer.run();
    }
    if (!summary) return std::nullopt;
    const bool whole = release_parameters(*model);
    if (!whole && summary->saved) load_newest(make_model());  // else there are no such parameters on disk
    return result_of(*std::move(summary));
  } catch (...) {
    if (model) release_parameters(*model);
    throw Failure{error_of(std::current_exception())};
  }
}

std::optional<RunResult> PythonTrainer::run(const SignalPipe& signals, PythonObject after_step) {
  after_step_ = std::move(after_step);
  std::optional<RunResult> result;
  try {
    auto worker = job::ElasticJob::from_environment(group::read_environment());
    elastic_ = worker.has_value();
    result = worker ? run_elastic(*std::move(worker), signals) : run_fixed(signals);
  } catch (...) {
    after_step_.reset();  // it may refer to this
    throw;
  }
  after_step_.reset();
  if (result && rank_ == 0 && !result->summary.left) fmt::print("\n{}", train::summary_text(result->summary));
  std::fflush(stdout);
  return result;
}

}  // namespace cohort::python
