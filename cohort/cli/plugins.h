// --plugin of `cohort train`, `plan` and `verify`: libraries that ranks load. This program has no torch, so a worker tries them, before
// anything else starts. Threads: one. Failure: Kind::usage with what is wrong with one of them.
#pragma once
#include <string>
#include <vector>

#include "cohort/train/settings.h"

namespace cohort::cli {

// Adds `given` to the settings' own, all with their whole path: a run may be resumed, or predicted with, in another folder.
void add_plugins(train::SettingsSource& source, const std::vector<std::string>& given);

// Kind::usage when one of them cannot be loaded.
void try_plugins(const std::vector<std::string>& plugins);

inline constexpr const char* kPluginHelp = "library with models, data sets or losses of your own (the setting `plugins`)";

}  // namespace cohort::cli
