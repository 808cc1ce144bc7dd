// Where rank 0 writes the numbers of a run while it lasts: metrics.jsonl, TensorBoard's event files, and a page for Prometheus.
// A run that is resumed after step n has not made the steps after n yet, whatever the files say of them: those lines go.
// Owner: RunLogger, on rank 0. Threads: one. Failure: a full disk loses records, never the run; Kind::system for a port that is taken.
#pragma once
#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cohort/observe/exporter.h"
#include "cohort/observe/metrics.h"
#include "cohort/observe/straggler_detector.h"
#include "cohort/observe/tensorboard.h"
#include "cohort/train/loop/train_loop.h"

namespace cohort::train {

// Means over the steps since the point before.
struct TrainingPoint {
  std::int64_t step = 0;
  double loss = 0, lr = 0, samples_per_second = 0, grad_norm_squared = 0, clip = 1, scale = 1;
  std::int64_t skipped = 0;
};

class MetricOutputs {
 public:
  MetricOutputs(const TrainConfig& config, Rank rank, std::int64_t step);  // step: the one the run goes on from

  const std::vector<nlohmann::json>& earlier() const { return earlier_; }  // lines of metrics.jsonl that stay
  std::string url() const;                                                 // of the page for Prometheus; empty: there is none
  bool has_tensorboard() const { return events_ != nullptr; }

  void training(const TrainingPoint& point, bool scaled);
  void evaluation(const Evaluation& test, std::int64_t step, std::int64_t epoch);
  void slow_ranks(std::size_t count);
  void rank_slow(const observe::StragglerDetector::Change& change);
  void line(std::initializer_list<observe::Field> fields) { metrics_.write(fields); }
  void histogram(const std::string& name, std::int64_t step, const at::Tensor& values);
  void image(int number, const at::Tensor& picture);  // [1 or 3, h, w], any range
  void flush();

 private:
  const std::vector<nlohmann::json> earlier_;  // read before the file is opened for appending
  observe::MetricsFile metrics_;
  std::unique_ptr<observe::EventWriter> events_;
  observe::Registry registry_;
  std::unique_ptr<observe::HttpServer> server_;
};

}  // namespace cohort::train
