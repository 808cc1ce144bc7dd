// The settings of a training run: one struct tree, from which come the YAML file, `--set key=value`, `cohort train --help-config` and the
// reference page. No torch here: the launcher reads and checks it before any rank starts.
// Owner: values. Threads: any. Failure: Kind::usage with the line and the nearest name. To add a field: here and in fields().
#pragma once
#include <string>
#include <vector>

#include "cohort/base/config.h"
#include "cohort/base/precision.h"
#include "cohort/engine/options.h"

namespace cohort::train {

struct DataConfig {
  std::string train = "fashion_mnist";
  std::string test = "fashion_mnist(split=test)";
  std::string transforms = "normalise";
  std::string sampler = "partition";
  int batch = 64;
  int accumulate = 1;
  bool drop_last = false;
  int threads = 0;
  std::int64_t max_pixels = 100'000'000;  // of data::InputLimits, as the next two
  std::int64_t max_scans = 30;
  std::int64_t max_inflate_ratio = 200;
};
void fields(DataConfig& c, FieldList& f);

struct OptimizerConfig {
  std::string schedule = "cosine(warmup=0.05)";
  bool decay_1d = false;
  std::vector<std::string> frozen;
  std::vector<std::string> lr_scale;
  double label_smoothing = 0;
};
void fields(OptimizerConfig& c, FieldList& f);

struct CheckpointConfig {
  int every_steps = 0;
  int every_epochs = 1;
  int keep = 3;
  Seconds last_try{60};
  std::string resume = "auto";
  std::vector<std::string> allow;
  bool takeover = false;
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
  std::string model = "mlp(hidden=512x512)";
  std::string loss = "auto";
  std::string pretrained;
  std::vector<std::string> plugins;
  std::int64_t seed = 1;
  int epochs = 5;
  std::int64_t steps = 0;
  std::string device = "cpu";
  int threads = 0;
  std::string backend = "native";  // of JobOptions, as deterministic
  bool deterministic = true;
  std::string sync = "all_reduce(op=sum)";
  std::string codec = "none";
  std::string mesh{};
  std::string optimizer = "sgd(lr=0.05, momentum=0.9, weight_decay=5e-4)";
  bool sync_batch_norm = false;
  Precision precision = Precision::fp32;
  std::string loss_scale = "auto";
  std::string recompute = "none";
  int check_replicas = 100;
  int max_skipped_steps = 20;
  DataConfig data;
  OptimizerConfig optim;
  engine::EngineOptions engine;  // without its strategy and mesh, which are `sync` and `mesh`: see engine_options()
  CheckpointConfig checkpoint;
  ObserveConfig observe;
};
void fields(TrainConfig& c, FieldList& f);
engine::EngineOptions engine_options(const TrainConfig& config);  // config.engine with config.sync and config.mesh

// Kind::usage with the reason for combinations that cannot be. Specs are parsed as far as that needs no torch.
void check(const TrainConfig& config);
// Kind::usage with the reason for what an elastic job cannot have: early_update, whatever is tied to one set of ranks or to a device.
void check_elastic(const TrainConfig& config);
bool splits_model(const TrainConfig& config);            // ranks of the mesh share layers out
bool shards_state(const TrainConfig& config);            // no rank has all of the optimizer's state
bool has_buddy_copies(const TrainConfig& config);        // and one that is lost has a buddy that does
bool drifts(const TrainConfig& config);                  // every rank has a model of its own between two sync rounds
std::string loss_scale_spec(const TrainConfig& config);  // config.loss_scale, or what auto means
std::string run_folder(const TrainConfig& config);       // config.out, or runs/<name>
std::string forecast_file(const TrainConfig& config);    // what `cohort plan` said about the run before it began; in its folder

}  // namespace cohort::train

namespace cohort {
using train::CheckpointConfig;
using train::DataConfig;
using train::ObserveConfig;
using train::OptimizerConfig;
using train::TrainConfig;
}  // namespace cohort
