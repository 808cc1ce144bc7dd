#include "cohort/bench/programs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/bench/process.h"

namespace cohort::bench {

namespace fs = std::filesystem;

std::string find_executable(std::string_view name) {
  const auto usable = [](const std::string& path) { return access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path); };
  if (name.find('/') != std::string_view::npos) return usable(std::string(name)) ? std::string(name) : "";
  const char* path = std::getenv("PATH");
  for (const auto folder : split(path == nullptr ? "/usr/bin:/bin" : path, ':'))
    if (auto full = fmt::format("{}/{}", folder, name); usable(full)) return full;
  return {};
}

std::string bundled_program(std::string_view name) {
  std::error_code ignored;
  const auto here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& folder : {here, here / "../libexec/cohort"})
    if (fs::exists(folder / name, ignored)) return fs::weakly_canonical(folder / name, ignored).string();
  return {};
}

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> python_candidates() {
  std::vector<std::string> candidates{environment("COHORT_PYTHON"), environment("COHORT_INSTALLED_PYTHON")};
  if (const auto venv = environment("VIRTUAL_ENV"); !venv.empty()) candidates.push_back(venv + "/bin/python");
  std::error_code ignored;
  auto folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const auto noted = folder / "../python_path";  // where `make build` records the Python it built for
  if (fs::is_regular_file(noted, ignored)) candidates.emplace_back(trim(read_file(noted.string())));
  for (; folder.has_relative_path(); folder = folder.parent_path())
    for (const char* name : {".venv", "venv"}) candidates.push_back((folder / name / "bin/python").string());
  candidates.emplace_back("python3");
  return candidates;
}

std::string search_python_with_torch() {
  for (const auto& candidate : python_candidates()) {
    const auto python = candidate.empty() ? std::string{} : find_executable(candidate);
    if (python.empty()) continue;
    const auto asks = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)";
    if (run_process({{python, "-c", asks}, {}}, Deadline::in(20s)).ok()) return python;
  }
  return {};
}

}  // namespace

std::string python_with_torch() {
  static const std::string found = search_python_with_torch();  // asking costs a process; the answer does not change
  return found;
}

}  // namespace cohort::bench
