// What a training run is told: one struct tree, from which come the YAML file, `--set key=value`, `cohort train --help-config` and the
// reference page. No torch here: the launcher reads and checks it before any rank starts.
// Owner: values. Threads: any. Failure: Kind::usage with the line and the nearest name. To add a field: here and in fields().
#pragma once
#include <string>
#include <vector>

#include "cohort/base/config.h"
#include "cohort/base/precision.h"
#include "cohort/engine/options.h"

namespace cohort {

struct DataConfig {
  std::string train = "fashion_mnist";
  std::string test = "fashion_mnist(split=test)";
  std::string transforms = "normalise";
  std::string sampler = "partition";
  int batch = 64;
  int accumulate = 1;
  bool drop_last = false;
  int threads = 0;
};
void fields(DataConfig& c, FieldList& f);

struct OptimConfig {
  std::string rule = "sgd(lr=0.05, momentum=0.9, weight_decay=5e-4)";
  std::string schedule = "cosine(warmup=0.05)";
  bool decay_1d = false;
  std::vector<std::string> frozen;
  std::vector<std::string> lr_scale;
  double label_smoothing = 0;
};
void fields(OptimConfig& c, FieldList& f);

struct CheckpointConfig {
  int every_steps = 0;
  int every_epochs = 1;
  int keep = 3;
  std::string resume = "auto";
};
void fields(CheckpointConfig& c, FieldList& f);

struct ObserveConfig {
  int every_steps = 20;
  bool tensorboard = true;
  bool histograms = true;
  int images = 8;
  int prometheus_port = -1;
  bool trace = false;
  bool report = true;
  bool plan = false;
};
void fields(ObserveConfig& c, FieldList& f);

struct TrainConfig {
  std::string name = "run";
  std::string out;
  std::string model = "mlp(in=784, hidden=512x512, out=10)";
  std::int64_t seed = 1;
  int epochs = 5;
  std::int64_t steps = 0;
  std::string device = "cpu";
  int threads = 0;
  std::string comm = "own";  // of JobOptions, as bits
  std::string bits = "same";
  std::string sync;  // another name of engine.strategy, for files and --set
  bool sync_batch_norm = false;
  Precision precision = Precision::fp32;
  std::string scale = "auto";
  std::string recompute = "none";
  int check_replicas = 100;
  DataConfig data;
  OptimConfig optim;
  engine::EngineOptions engine{.strategy = "all_reduce(op=sum)"};
  CheckpointConfig checkpoint;
  ObserveConfig observe;
};
void fields(TrainConfig& c, FieldList& f);

// Combinations that cannot be, with the reason. Specs are parsed as far as that needs no torch.
void check(const TrainConfig& config);
// Kind::usage with the reason for what cannot be elastic: early_update, ties to one roster or to a device.
void check_elastic(const TrainConfig& config);
bool shards_state(const TrainConfig& config);          // no rank has all of the optimizer's state
bool keeps_buddies(const TrainConfig& config);         // and one that is lost has a buddy that does
std::string scale_rule(const TrainConfig& config);     // of the loss: config.scale, or what auto means
std::string run_folder(const TrainConfig& config);     // config.out, or runs/<name>
std::string forecast_file(const TrainConfig& config);  // what `cohort plan` said about the run before it began; in its folder

}  // namespace cohort
