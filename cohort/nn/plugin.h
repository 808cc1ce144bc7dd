// Models, data sets and losses of one's own in a library that `cohort train`, `plan`, `verify` and `predict` load (--plugin, the setting
// `plugins`). The library is one file:
//   #include <cohort/nn/plugin.h>
//   COHORT_PLUGIN(plugin) {
//     plugin.models.push_back({.name = "mine", .about = "..", .params = [] { return std::vector<cohort::SpecParam>{..}; }, .build =
//     build});
//   }
// built with add_library(mine MODULE mine.cc), target_link_libraries(mine PRIVATE Cohort::torch). docs/own_models.md has the whole of it.
// Owner: the process, for good. Threads: any. Failure: Kind::usage for a file that is not there, no library, no plugin, of another version
// of Cohort or torch, or with a name that is in use.
#pragma once
#include <torch/version.h>

#include <span>
#include <string>
#include <vector>

#include "cohort/base/version.h"
#include "cohort/data/dataset.h"
#include "cohort/nn/loss.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {

struct Plugin {
  std::vector<Architecture> models;
  std::vector<data::DatasetKind> datasets;
  std::vector<LossKind> losses;
};

// Adds what the libraries have to the tables. One that is loaded already adds nothing again.
void load_plugins(std::span<const std::string> paths);

}  // namespace cohort::nn

// The versions are asked for first, and by plain functions: a library of another version may have another Plugin.
#define COHORT_PLUGIN(plugin)                                                                                                  \
  extern "C" __attribute__((visibility("default"))) const char* cohort_plugin_version() { return ::cohort::version().data(); } \
  extern "C" __attribute__((visibility("default"))) const char* cohort_plugin_torch() { return TORCH_VERSION; }                \
  extern "C" __attribute__((visibility("default"))) void cohort_plugin(::cohort::nn::Plugin& plugin)
