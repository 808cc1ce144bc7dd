// The Chronicle tells of a run while it lasts and afterwards: progress on the screen, metrics.jsonl, TensorBoard files, Prometheus, a trace
// of every rank, and at the end a table and an HTML report. Everything but the trace is rank 0's. Owner: Trainer. Threads: one. Failure: a
// full disk loses records, never the run.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cohort/group/stragglers.h"
#include "cohort/observe/exporter.h"
#include "cohort/observe/metrics.h"
#include "cohort/observe/progress.h"
#include "cohort/observe/report.h"
#include "cohort/observe/tensorboard.h"
#include "cohort/train/loop/learner.h"

namespace cohort {

struct RunSummary {
  std::int64_t steps = 0;
  Evaluation test;
  double train_loss = 0, seconds = 0, samples_per_second = 0;
  observe::PhaseSeconds phases;  // of all ranks together
  std::string folder, report, trace;
  std::string slow;          // ranks that were slower than the others, and when; empty: none
  std::int64_t skipped = 0;  // steps called off
  double scale = 0;          // of the loss, at the end; 0: it was not scaled
  bool saved = true;         // rank 0: the last checkpoint is on disk
  bool left = false;         // ended before its time: a rank was told to leave (Trainer::leave())
};

class Chronicle {
 public:
  Chronicle(collective::Communicator& comm, const TrainConfig& config, std::string config_text, const Learner& learner);
  ~Chronicle();

  void epoch_starts(std::int64_t epoch, std::int64_t epochs, std::int64_t done, std::int64_t total);
  void step_done(const StepResult& result, std::int64_t step, std::int64_t done_in_epoch);
  void epoch_ends(std::int64_t step);  // before evaluating
  void evaluated(const Evaluation& test, std::int64_t step, std::int64_t epoch);
  void show_values(Learner& learner, std::int64_t step);                            // histograms of parameters; every rank calls it
  void show_images(const at::Tensor& batch);                                        // [n, 1 or 3, h, w]
  void say(const std::string& line);                                                // above the progress bar
  void hold_against_plan(const Yardstick& yardstick);                               // says it, and writes plan.json
  void note(const std::string& line, std::initializer_list<observe::Field> facts);  // said, and a line of metrics.jsonl
  RunSummary finish(const Evaluation& test, const Learner& learner);  // collective: gathers the ranks' times, writes report and trace

 private:
  void remember(const std::vector<nlohmann::json>& lines);  // of the run before it was resumed
  void record(std::int64_t step);                           // a point of the curves, from the steps since the last one
  std::string write_report(const RunSummary& summary, const std::vector<double>& seconds) const;
  std::string merge_traces();
  void watch(const StepResult& r, std::int64_t step);  // who is slow (group/stragglers.h)
  void ends_slowness(std::int64_t rank, std::int64_t step);
  std::string slow_text() const;

  collective::Communicator& comm_;
  const TrainConfig config_;
  const std::string config_text_, folder_;
  const bool first_;   // rank 0
  const bool scaled_;  // the loss is
  const Clock::time_point start_ = Clock::now();
  observe::PhaseSeconds phases_;
  std::unique_ptr<observe::MetricsFile> metrics_;
  std::unique_ptr<observe::EventWriter> events_;
  observe::Registry registry_;
  std::unique_ptr<observe::HttpServer> server_;
  int terminal_ = -1;
  std::unique_ptr<observe::Progress> progress_;
  observe::Series loss_{"training loss", {}, {}, {}}, rate_{"samples/s", {}, {}, {}}, lr_{"learning rate", {}, {}, {}},
      scale_{"loss scale", {}, {}, {}}, test_loss_{"test loss", {}, {}, {}}, accuracy_{"test accuracy", {}, {}, {}};
  double samples_ = 0;                           // over the whole run
  StepResult last_;                              // the newest
  double window_loss_ = 0, window_samples_ = 0;  // since the last point
  Clock::time_point window_start_ = start_;
  double trained_seconds_ = 0;
  double before_ = 0;  // seconds of the curves before this start
  group::Stragglers stragglers_;
  std::vector<double> window_paces_, window_counts_;  // by rank, since stragglers_ were told last
  std::int64_t window_steps_ = 0;
  Clock::time_point window_began_ = start_;
  bool warm_ = false;  // the first of these windows is over
  struct Slow {
    std::int64_t rank = 0, from = 0, to = -1;  // steps; -1: it still is
    double of_median = 1;                      // when it was named
  };
  std::vector<Slow> slow_;
};

std::string summary_text(const RunSummary& summary);  // the final table

}  // namespace cohort
