// A training run of a Python model on Python data: what cohort.Trainer (python/cohort/trainer.py) drives.
//   PythonTrainer trainer(std::move(parts));
//   std::optional<RunResult> result = trainer.run({pipe, {SIGINT}}, after_step);    // without the GIL; collective: every rank calls it
// run() connects to the other ranks (or uses those of hvd.init()), trains as train/loop/trainer.h or elastic_trainer.h says, gives the
// model memory of its own again, and leaves nothing behind: no thread, no connection. When Python code fails here (forward, loss, data set)
// the other ranks are told its text and this rank, and slot() has the exception for the caller to raise. Owner: Python. Threads: run() on
// one, once at a time; leave() from any. Failure: as Trainer.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cohort/elastic/elastic_worker.h"
#include "cohort/python/train/interrupt_watcher.h"
#include "cohort/python/train/python_model.h"
#include "cohort/python/train/python_objective.h"
#include "cohort/train/loop/model_and_data.h"
#include "cohort/train/loop/rank_status.h"
#include "cohort/train/loop/run_report.h"

namespace cohort::python {

struct TrainerParts {
  TrainConfig config;
  std::string name;  // of the model, in messages and checkpoints
  PythonObject model;
  std::vector<BlockOfModel> blocks;
  PythonObject train, test;  // test may be none
  PythonObjective objective;
};

struct RunResult {
  train::RunSummary summary;
  std::string checkpoint;  // the newest that is whole; empty: none is
};

class PythonTrainer {
 public:
  explicit PythonTrainer(TrainerParts parts) : parts_(std::move(parts)) {}

  // Once. after_step: called with (step, epoch, loss). None: this worker of an elastic job was asked to leave before the end.
  std::optional<RunResult> run(const SignalPipe& signals, PythonObject after_step);
  // All ranks end after the same step, with a checkpoint. Before run(): after its first step.
  void leave(const std::string& why);
  ExceptionSlot& slot() { return slot_; }
  int rank() const { return rank_; }  // during a run and after it; before: 0 of 1
  int size() const { return size_; }
  const TrainConfig& config() const { return parts_.config; }

 private:
  train::ModelAndData open();
  RunResult run_fixed(const SignalPipe& signals);
  std::optional<RunResult> run_elastic(elastic::ElasticWorkerOptions worker, const SignalPipe& signals);
  RunResult train_on(collective::Communicator& comm, TrainConfig config, int ranks_here, const SignalPipe& signals);
  RunResult result_of(train::RunSummary summary) const;
  std::string checkpoints() const;  // the folder
  void load_newest(const nn::Model& model) const;
  void stepped(train::TrainLoop& loop, Rank rank);
  Error error_of(const std::exception_ptr& thrown);
  void tell_others(collective::Communicator& comm, const Error& error) const;
  void set_leave(std::function<void(const std::string&)> call);
  struct LeaveGuard {  // what leave() does, while it lives
    LeaveGuard(PythonTrainer& trainer, std::function<void(const std::string&)> call) : of(trainer) { of.set_leave(std::move(call)); }
    ~LeaveGuard() { of.set_leave({}); }
    LeaveGuard(const LeaveGuard&) = delete;
    LeaveGuard& operator=(const LeaveGuard&) = delete;
    PythonTrainer& of;
  };

  TrainerParts parts_;
  PythonObject after_step_;  // of the run under way
  bool elastic_ = false;     // likewise
  double last_loss_ = 0;     // likewise
  ExceptionSlot slot_;
  train::RankStatus status_;
  std::atomic<int> rank_{0}, size_{1};
  std::mutex mutex_;
  std::function<void(const std::string&)> leave_;  // guarded by mutex_: of the run under way
  std::string leaves_;                             // guarded by mutex_: asked for before that
};

}  // namespace cohort::python
