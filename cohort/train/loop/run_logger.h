// The RunLogger reports on a run while it lasts and at its end: progress on the terminal, the numbers in files and over HTTP
// (metric_outputs.h), slow ranks (straggler_log.h), a trace of every rank, and at the end a table and an HTML report (run_report.h).
// Everything but the trace is rank 0's. Owner: Trainer. Threads: one. Failure: of the communicator only. What cannot be written or opened
// is a warning, never the end of the run (best_effort.h): in an elastic job every rank 0 to come would fail the same way.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/observe/progress.h"
#include "cohort/train/loop/metric_outputs.h"
#include "cohort/train/loop/run_report.h"
#include "cohort/train/loop/straggler_log.h"
#include "cohort/train/loop/train_loop.h"

namespace cohort::train {

class RunLogger {
 public:
  // may_write: on rank 0, whether the run's folder still is this job's (CheckpointManager::may_write).
  RunLogger(collective::Communicator& comm, const TrainConfig& config, std::string config_text, const TrainLoop& loop,
            std::function<bool()> may_write = nullptr);
  ~RunLogger();

  void resumed(std::int64_t step, const TrainLoop& loop);  // says so, and whether anything is left to do
  void epoch_starts(std::int64_t epoch, std::int64_t epochs, std::int64_t done, std::int64_t total);
  void step_done(const StepResult& result, std::int64_t step, std::int64_t done_in_epoch);
  void epoch_ends(std::int64_t step);  // before evaluating
  void evaluated(const Evaluation& test, std::int64_t step, std::int64_t epoch);
  void show_values(TrainLoop& loop, std::int64_t step);                              // histograms of parameters; every rank calls it
  void show_images(const at::Tensor& batch);                                         // [n, 1 or 3, h, w]
  void say(const std::string& line);                                                 // above the progress bar
  void compare_with_plan(const StepProfiler& profiler);                              // prints it, and writes plan.json
  void note(const std::string& line, std::initializer_list<observe::Field> fields);  // printed, and a line of metrics.jsonl
  RunSummary finish(const Evaluation& test, const TrainLoop& loop);  // collective: gathers the ranks' times, writes report and trace

 private:
  void start_trace();  // collective
  void open_trace();
  void write_settings();
  void open_terminal();
  void record(std::int64_t step);  // a point of the curves, from the steps since the last one
  std::string merge_traces();
  void note_left_out(const StepResult& r, std::int64_t step);
  void note_staleness(const StepResult& r);
  void end_left_out(const std::string& what);
  void find_stragglers(const StepResult& r, std::int64_t step);

  collective::Communicator& comm_;
  const TrainConfig config_;
  const std::string config_text_, folder_;
  const bool first_;   // rank 0
  const bool scaled_;  // the loss is
  const double global_batch_;
  const std::function<bool()> may_write_;
  const Clock::time_point start_ = Clock::now();
  observe::PhaseSeconds phases_;
  BestEffort settings_effort_{"config.yaml", "at the next epoch"};
  bool settings_written_ = false;
  BestEffort trace_effort_{"this rank's trace", "at the next epoch"};
  BestEffort report_effort_{"report.html", "when the run is started again"};
  std::unique_ptr<MetricOutputs> outputs_;  // rank 0
  int terminal_ = -1;
  std::unique_ptr<observe::Progress> progress_;  // rank 0
  RunCurves curves_;
  StragglerLog stragglers_;
  std::uint64_t left_out_ = 0;                   // steps in a row that were called off ..
  std::int64_t left_out_last_ = 0;               // .. and the last of them
  double samples_ = 0;                           // over the whole run
  StepResult last_;                              // the newest
  double window_loss_ = 0, window_samples_ = 0;  // since the last point
  std::optional<sync::Staleness> window_staleness_;
  int window_steps_ = 0;                          // that it is of
  double window_bytes_ = 0, received_steps_ = 0;  // received by this rank since then, in so many steps
  double all_bytes_ = 0, all_steps_ = 0;          // over this start of the run
  Clock::time_point window_start_ = start_;
  double trained_seconds_ = 0;
  double earlier_seconds_ = 0;  // seconds of the curves before this start
};

}  // namespace cohort::train
