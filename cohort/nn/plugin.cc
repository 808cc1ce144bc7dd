#include "cohort/nn/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "cohort/base/error.h"

namespace cohort::nn {
namespace {

namespace fs = std::filesystem;

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

void check_version(const std::string& path, std::string_view what, const char* (*built_with)(), std::string_view ours) {
  const std::string_view theirs = built_with == nullptr ? "?" : built_with();
  if (theirs != ours)
    throw_failure(Kind::usage, "plugin {} was built with {} {}, this is {} {}: build it again", path, what, theirs, what, ours);
}

std::unique_ptr<Plugin> open(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) throw_failure(Kind::usage, "there is no plugin {}", path);
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw_failure(Kind::usage, "plugin {} cannot be loaded: {}", path, dlerror());
  auto* const fill = find<void(Plugin&)>(library, "cohort_plugin");
  if (fill == nullptr)
    throw_failure(Kind::usage, "{} is no plugin of cohort: it has no COHORT_PLUGIN(..) {{ .. }} (cohort/nn/plugin.h)", path);
  check_version(path, "cohort", find<const char*()>(library, "cohort_plugin_version"), version());
  check_version(path, "torch", find<const char*()>(library, "cohort_plugin_torch"), TORCH_VERSION);
  auto plugin = std::make_unique<Plugin>();
  fill(*plugin);
  return plugin;
}

void check_complete(const Plugin& plugin, const std::string& path) {
  const auto refuse = [&](std::string_view what, std::string_view name) {
    throw_failure(Kind::usage, "plugin {}: {} '{}' lacks its name or a function", path, what, name);
  };
  for (const auto& row : plugin.models)
    if (row.name.empty() || row.params == nullptr || row.build == nullptr) refuse("model", row.name);
  for (const auto& row : plugin.datasets)
    if (row.name.empty() || row.schema == nullptr || row.open == nullptr) refuse("data set", row.name);
  for (const auto& row : plugin.losses)
    if (row.name.empty() || row.params == nullptr || row.sum == nullptr) refuse("loss", row.name);
}

void add(const Plugin& plugin, const std::string& path) {
  check_complete(plugin, path);
  const std::string from = "plugin " + path;
  for (const auto& row : plugin.models) add_architecture(row, from);
  for (const auto& row : plugin.datasets) data::add_dataset(row, from);
  for (const auto& row : plugin.losses) add_loss(row, from);
}

}  // namespace

void load_plugins(std::span<const std::string> paths) {
  static std::mutex mutex;
  struct Loaded {
    std::unique_ptr<Plugin> plugin;  // the tables refer to its rows, also when it was refused after some of them
    std::optional<Error> refused;
  };
  static std::map<std::string, Loaded> all;  // by path
  const std::lock_guard lock(mutex);
  for (const std::string& given : paths) {
    std::error_code ignored;
    const std::string path = fs::weakly_canonical(given, ignored).string();
    if (const auto before = all.find(path); before != all.end()) {
      if (before->second.refused) throw Failure{*before->second.refused};
      continue;
    }
    Loaded& one = all[path] = {open(path), std::nullopt};
    try {
      add(*one.plugin, path);
    } catch (const Failure& failure) {
      one.refused = failure.error();
      throw;
    }
  }
}

}  // namespace cohort::nn
