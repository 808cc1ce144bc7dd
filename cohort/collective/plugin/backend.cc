#include "cohort/collective/plugin/backend.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "cohort/base/text.h"
#include "cohort/collective/backend_rows.inc"

namespace cohort::collective {
namespace {

namespace fs = std::filesystem;

// Launchers that start processes which MPI can join together.
constexpr std::array<std::string_view, 5> kMpiLaunchers{"openmpi", "slurm", "pmi", "pmix", "alone"};

// Where the program or the library lies that this code is part of.
fs::path library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&find_backend), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  const fs::path itself = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path object = info.dli_fname;
  // A program's own name is what it was called by.
  return fs::weakly_canonical(object.is_absolute() ? object : itself, ignored).parent_path();
}

std::vector<fs::path> places(const std::string& folder) {
  if (!folder.empty()) return {folder};
  const fs::path here = library_folder();
  return {here, here / "bin", here / "../libexec/cohort"};  // bin: of the Python package, whose extension module this is
}

const BackendRow& row_named(std::string_view name) {
  std::vector<std::string_view> known;
  for (const BackendRow& row : backend_rows()) {
    if (row.name == name) return row;
    known.push_back(row.name);
  }
  throw_unknown("backend", name, known);
}

BackendPlugin load(const std::string& name, const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, const BackendPlugin*> loaded;  // by path, for good: a backend's threads may outlive its last user
  const std::lock_guard lock(mutex);
  if (const auto found = loaded.find(path); found != loaded.end()) return *found->second;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw_failure(Kind::usage, "backend: {} cannot be loaded: {}", name, dlerror());
  const auto* const plugin = static_cast<const BackendPlugin*>(dlsym(library, ("cohort_backend_" + name).c_str()));
  if (plugin == nullptr) throw_failure(Kind::usage, "{} is no backend of cohort: it does not export cohort_backend_{}", path, name);
  if (std::string_view(plugin->version) != COHORT_VERSION)
    throw_failure(Kind::usage, "{} belongs to cohort {}, this is cohort {}; build and install them together", path, plugin->version,
                  COHORT_VERSION);
  loaded[path] = plugin;
  return *plugin;
}

}  // namespace

std::span<const BackendRow> backend_rows() { return kBackendRows; }

std::vector<std::string> backend_names() {
  std::vector<std::string> words{"auto", "native"};
  for (const BackendRow& row : backend_rows()) words.emplace_back(row.name);
  return words;
}

void Backend::scale(Piece /*data*/, double /*factor*/, void* /*stream*/) { throw_failure(Kind::usage, "{} does not scale", text()); }

std::string find_backend(std::string_view name, const std::string& folder) {
  for (const fs::path& place : places(folder)) {
    std::error_code ignored;
    const fs::path path = place / fmt::format("libcohort_backend_{}.so", name);
    if (fs::exists(path, ignored)) return fs::weakly_canonical(path, ignored).string();
  }
  return {};
}

std::string why_no_backend(std::string_view name, const BackendOptions& s) {
  const BackendRow& row = row_named(name);
  if (find_backend(name, s.folder).empty()) {
    std::vector<std::string> looked;
    for (const fs::path& place : places(s.folder)) looked.push_back(place.lexically_normal().string());
    const auto next =
        row.built ? "set COHORT_BACKENDS to the folder it is in" : fmt::format("it needs {}: install that and build again", row.needs);
    return fmt::format("libcohort_backend_{}.so is not in {}; {}", name, join(looked, " nor in "), next);
  }
  if (name == "mpi" && std::find(kMpiLaunchers.begin(), kMpiLaunchers.end(), s.launcher) == kMpiLaunchers.end())
    return fmt::format("these ranks were started by {}, and MPI cannot join processes it did not start; use `mpirun -n N program` instead",
                       s.launcher == "cohort" ? "`cohort run`" : s.launcher);
  return {};
}

std::unique_ptr<Backend> open_backend(std::string_view name, const BackendContext& context) {
  if (const auto why = why_no_backend(name, context.options); !why.empty()) throw_failure(Kind::usage, "backend: {}: {}", name, why);
  const BackendPlugin plugin = load(std::string(name), find_backend(name, context.options.folder));
  return plugin.open(context);
}

}  // namespace cohort::collective
