// What `cohort verify` is asked. Threads: values. Failure: Kind::usage.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/settings.h"

namespace cohort::cli {

struct VerifyOptions {
  train::SettingsSource source;
  std::vector<std::string> plugins;  // beside those of the settings
  std::vector<std::string> changes;  // settings of the compared runs that the reference does not have
  std::vector<int> ranks{1, 2};
  std::vector<std::string> syncs{"all_reduce"};
  int steps = 1;
  std::int64_t global_batch = 0;
  double tolerance = 0;  // 0: by the type
  double timeout = 600;
  int plant_error = -1;  // the rank whose first gradient is doubled; -1: none
  bool float64 = false, json = false;
  std::string keep;  // folder for what the runs leave; empty: a temporary one

  double most() const;  // the tolerance in effect
};

std::optional<VerifyOptions> parse_verify(int argc, char** argv);  // empty: help was asked for and given
// At commas outside of brackets: "all_reduce, zero(stage=2, op=sum)" is two.
std::vector<std::string> split_specs(std::string_view text);
// The samples of a step that all runs share. Kind::usage when some number of ranks cannot share them out evenly.
std::int64_t shared_batch(const VerifyOptions& options, const TrainConfig& config);
// Settings of a run on so many ranks, as key=value: the same global batch, rate, and length for all.
std::vector<std::string> settings_of_run(const VerifyOptions& options, const TrainConfig& config, int ranks, const std::string& sync);

}  // namespace cohort::cli
