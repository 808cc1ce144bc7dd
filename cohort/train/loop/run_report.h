// What is written about a run at its end: report.html with the curves of the whole run, and the table on the screen.
// Owner: RunLogger, on rank 0. Threads: one. Failure: Kind::system of a report that cannot be written.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "cohort/observe/chart.h"
#include "cohort/observe/phases.h"
#include "cohort/train/loop/train_loop.h"

namespace cohort::train {

struct RunSummary {
  std::int64_t steps = 0;
  Evaluation test;
  double train_loss = 0, seconds = 0, samples_per_second = 0;
  observe::PhaseSeconds phases;  // of all ranks together
  std::string folder, report, trace;
  std::string slow;                     // ranks that were slower than the others, and when; empty: none
  std::int64_t skipped = 0;             // steps called off
  double received = 0, all_reduce = 0;  // bytes that rank 0 received in a step, and would with sync=all_reduce; 0: of one rank
  double scale = 0;                     // of the loss, at the end; 0: it was not scaled
  bool saved = true;                    // the last checkpoint is on disk; the same on all ranks
  std::string lost;                     // otherwise: which updates, and what is kept
  int rank = 0;                         // of this process, at the end
  bool left = false;                    // ended before its time: a rank was told to leave (Trainer::leave())
};

// Over steps, with the seconds since the run began.
struct RunCurves {
  observe::Series loss{"training loss", {}, {}, {}}, rate{"samples/s", {}, {}, {}}, lr{"learning rate", {}, {}, {}},
      scale{"loss scale", {}, {}, {}}, test_loss{"test loss", {}, {}, {}}, received{"received by rank 0", {}, {}, {}},
      disagreement{"disagreement", {}, {}, {}}, residual{"residual", {}, {}, {}};
  struct MetricCurve {
    std::string name;
    bool percent;
    observe::Series series;
  };
  std::vector<MetricCurve> metrics;  // of the evaluations

  RunCurves() = default;
  explicit RunCurves(std::span<const nn::Metric> of);
  void add_metric(std::size_t which, double step, double value, double seconds);
  static void add(observe::Series& series, double step, double value, double seconds);
  // From the lines of metrics.jsonl of a run that is resumed: curves begin where the run did. Returns the seconds they cover; the time
  // between two starts counts for neither.
  double load(const std::vector<nlohmann::json>& lines);
};

// seconds: of every rank its phases, in rank order. Returns the path.
std::string write_run_report(const TrainConfig& config, const std::string& config_text, const RunSummary& summary, const RunCurves& curves,
                             std::span<const double> seconds);

std::string summary_text(const RunSummary& summary);    // the final table
std::string not_saved_text(const RunSummary& summary);  // of a run that is not saved: that it ended, and what is lost

}  // namespace cohort::train
