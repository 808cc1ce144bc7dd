// What a run does with a checkpoint that was made with other settings or other data. Decided on rank 0, before a tensor is read.
//   listed       everything that changes what is learned (learning rate, schedule, batch, epochs, precision ..): one line each in the log
//   refused      another training set; an optimizer whose state does not fit; in the middle of an epoch another seed, sampler or number of
//                samples, which would skip samples and repeat others. `checkpoint.allow` permits each by name
//   silent       what changes no result: folders, names, threads, buckets, what is observed, when checkpoints are made
// Another model is found when its tensors are compared (loop/state_io.h).
// Owner: values. Threads: any. Failure: Kind::usage naming the checkpoint, what differs and what to do. To add a setting that needs a
// rule of its own: kRules in resume.cc.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "cohort/checkpoint/store.h"
#include "cohort/train/config.h"

namespace cohort::train {

// Words of the setting checkpoint.allow.
inline constexpr const char* kAllowData = "data";
inline constexpr const char* kAllowOptimizer = "optimizer";
inline constexpr const char* kAllowRestart = "restart_epoch";

// Keys of a manifest's texts.
inline constexpr const char* kDataText = "training_set";               // data::to_text of its fingerprint
inline constexpr const char* kOptimizerStartText = "optimizer_start";  // updates before the optimizer's state began; missing: 0
inline constexpr const char* kNotFiniteText = "steps_not_finite";      // in a row, before the checkpoint

// "data.batch" -> "32". yaml: as Config writes it, two spaces a level; remarks are part of the value.
std::map<std::string, std::string> settings_by_name(const std::string& yaml);

enum class StateToRead { all, fitting, none };  // of the optimizer; fitting: what both have, the rest starts as in a new run

struct ResumePlan {
  std::vector<std::string> changes;  // "optim.schedule: constant -> cosine"
  StateToRead state = StateToRead::all;
  bool restart_epoch = false;  // the epoch of the checkpoint begins anew
};

// The run as it is now.
struct ResumingRun {
  const TrainConfig& config;
  std::string yaml;  // its settings, as they will be saved
  std::string data;  // fingerprint of the training set, as text
};

ResumePlan plan_resume(const checkpoint::Checkpoint& from, const ResumingRun& run);

}  // namespace cohort::train
