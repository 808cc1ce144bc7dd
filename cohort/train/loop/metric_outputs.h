// Where rank 0 writes the numbers of a run while it lasts: metrics.jsonl, TensorBoard's event files, and a page for Prometheus.
// A run that is resumed after step n has not made the steps after n yet, whatever the files say of them: those lines go.
// Owner: RunLogger, on rank 0. Threads: one. Failure: none. What cannot be opened or written is warned about and tried again with the next
// record (the page after the next evaluation); when the port asked for is taken, the page gets a free one.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/observe/exporter.h"
#include "cohort/observe/metrics.h"
#include "cohort/observe/straggler_detector.h"
#include "cohort/observe/tensorboard.h"
#include "cohort/train/loop/best_effort.h"
#include "cohort/train/loop/train_loop.h"

namespace cohort::train {

// Means over the steps since the point before.
struct TrainingPoint {
  std::int64_t step = 0;
  double loss = 0, lr = 0, samples_per_second = 0, grad_norm_squared = 0, clip = 1, scale = 1;
  std::int64_t skipped = 0;
  std::optional<sync::Staleness> staleness{};  // of this rank's reads from servers, since the last record
  double received_bytes = 0;                   // by this rank in a step
};

class MetricOutputs {
 public:
  // step: the one the run goes on from. may_write: asked before each record; once it says no, nothing is written any more.
  MetricOutputs(const TrainConfig& config, Rank rank, std::int64_t step, std::function<bool()> may_write = nullptr);

  const std::vector<nlohmann::json>& earlier() const { return earlier_; }  // lines of metrics.jsonl that stay
  std::string url() const;                                                 // of the page for Prometheus; empty: there is none
  bool has_tensorboard() const { return events_ != nullptr; }

  void training(const TrainingPoint& point, bool scaled);
  void evaluation(const Evaluation& test, std::int64_t step, std::int64_t epoch);
  void slow_ranks(std::size_t count);
  void rank_slow(const observe::StragglerDetector::Change& change);
  void line(std::span<const observe::Field> fields);
  void line(std::initializer_list<observe::Field> fields) { line(std::span(fields.begin(), fields.size())); }
  void histogram(const std::string& name, std::int64_t step, const at::Tensor& values);
  void image(int number, const at::Tensor& picture);  // [1 or 3, h, w], any range
  void flush();

 private:
  void read_earlier_lines();
  bool allowed();
  bool open_metrics();  // these two: whether it is open now
  bool open_events();
  void open_server();

  const std::string folder_;
  const Rank rank_;
  const std::int64_t step_;  // the run goes on from it
  const bool wants_events_;
  const int port_;  // of the page for Prometheus; -1: none
  const std::string title_;
  const std::function<bool()> may_write_;
  bool closed_ = false;  // it said no
  BestEffort earlier_effort_{"the curves before this start"};
  BestEffort metrics_effort_{"metrics.jsonl", "with the next record"};
  BestEffort events_effort_{"TensorBoard's events", "with the next record"};
  BestEffort server_effort_{"a page for Prometheus", "after the next evaluation"};
  std::vector<nlohmann::json> earlier_;
  std::optional<std::string> shorter_;  // the file without the lines after step_, until it is written
  std::optional<observe::MetricsFile> metrics_;
  std::unique_ptr<observe::EventWriter> events_;
  observe::Registry registry_;
  std::unique_ptr<observe::HttpServer> server_;
};

}  // namespace cohort::train
