#include "cohort/launch/program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "cohort/base/text.h"
#include "cohort/launch/exit_codes.h"

namespace cohort::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostHints = 3;       // names that may have been meant, in one message
constexpr std::size_t kLeastBeginning = 3;  // letters that say which name was begun

bool is_file(const std::string& path) {
  struct stat st {};
  return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}
bool is_program(const std::string& path) { return is_file(path) && access(path.c_str(), X_OK) == 0; }

std::string value_of(const group::Environment& env, std::string_view name, std::string_view otherwise) {
  const auto at = env.find(name);
  return std::string(at == env.end() || at->second.empty() ? otherwise : std::string_view(at->second));
}

std::vector<std::string> folders_of_path(const group::Environment& env) {
  std::vector<std::string> folders;
  const std::string path = value_of(env, "PATH", "/usr/local/bin:/usr/bin:/bin");
  for (const auto part : split(path, ':')) folders.emplace_back(part.empty() ? "." : part);
  return folders;
}

std::optional<std::string> search(const std::string& name, const std::vector<std::string>& folders) {
  for (const auto& folder : folders)
    if (const std::string path = folder + "/" + name; is_program(path)) return path;
  return std::nullopt;
}

// "'a' or 'b'": the programs in these folders that were most likely meant, nearest first, then those whose names only begin so; empty for
// none. prefix: of each.
std::string nearest_files(const std::string& name, const std::vector<std::string>& folders, std::string_view prefix = "") {
  std::set<std::string> names;
  for (const auto& folder : folders) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) names.insert(entry.path().filename().string());
  }
  std::vector<std::string_view> candidates(names.begin(), names.end());
  const auto next = [&]() -> std::string_view {
    if (const auto near = nearest(name, candidates); !near.empty()) return near;
    const auto longer = std::ranges::find_if(candidates, [&](std::string_view n) { return n.starts_with(name); });
    return longer == candidates.end() || name.size() < kLeastBeginning ? std::string_view() : *longer;
  };
  std::vector<std::string> found;
  for (std::string_view one = next(); found.size() < kMostHints && !one.empty(); one = next()) {
    found.push_back(fmt::format("'{}{}'", prefix, printable(one)));
    std::erase(candidates, one);
  }
  return join(found, " or ");
}

[[noreturn]] void not_found(const std::string& word, const std::vector<std::string>& extra, const group::Environment& env) {
  const auto slash = word.rfind('/');
  std::string hint, looked;
  if (slash == word.npos) {
    std::vector<std::string> folders = folders_of_path(env);
    folders.insert(folders.end(), extra.begin(), extra.end());
    looked = extra.empty() ? " in PATH" : fmt::format(" in PATH, {}", join(extra, ", "));
    hint = is_file(word) ? fmt::format("'./{}'", printable(word)) : nearest_files(word, folders);
    if (hint.empty()) hint = nearest_files(word, {"."}, "./");
  } else {
    hint = nearest_files(word.substr(slash + 1), {word.substr(0, slash + 1)}, word.substr(0, slash + 1));
  }
  throw NoProgram(fmt::format("cannot find '{}'{}{}", printable(word), looked, hint.empty() ? "" : fmt::format("; did you mean {}?", hint)),
                  kExitNotFound);
}

// The first that is named: by --python, by the user's variables, by the `cohort` command of a Python that the package was installed for.
std::string find_python(const std::string& asked, const group::Environment& env) {
  std::pair<std::string, std::string> wanted{"--python", asked};
  for (const char* variable : {"COHORT_PYTHON", "PYTHON_EXEC", "COHORT_INSTALLED_PYTHON"})
    if (wanted.second.empty()) wanted = {variable, value_of(env, variable, "")};
  const auto& [by, python] = wanted;
  if (!python.empty()) {
    if (python.find('/') != python.npos && is_program(python)) return python;
    if (const auto path = search(python, folders_of_path(env))) return *path;
    throw NoProgram(fmt::format("{}={} is no program", by, printable(python)), kExitNotFound);
  }
  for (const char* name : {"python3", "python"})
    if (const auto path = search(name, folders_of_path(env))) return *path;
  throw NoProgram("no python3 in PATH; name your interpreter by --python or COHORT_PYTHON", kExitNotFound);
}

Program with_python(std::vector<std::string> words, const ProgramRequest& request, const group::Environment& env) {
  const std::string python = find_python(request.python, env);
  words.insert(words.begin(), python);
  return {python, std::move(words)};
}

}  // namespace

std::vector<std::string> example_folders() {
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path installed = (here.parent_path() / "libexec/cohort/examples");
  std::vector<std::string> folders{here.string()};
  if (fs::is_directory(installed, ignored)) folders.push_back(installed.string());
  return folders;
}

Program find_program(const ProgramRequest& request, const group::Environment& env) {
  std::vector<std::string> words = request.command;
  if (request.module) {
    words.insert(words.begin(), "-m");
    return with_python(std::move(words), request, env);
  }
  const std::string word = words[0];
  const bool script = word.ends_with(".py") && !request.no_python;
  if (script && is_file(word) && !is_program(word)) return with_python(std::move(words), request, env);
  if (word.find('/') == word.npos) {
    if (const auto path = search(word, folders_of_path(env))) return {*path, std::move(words)};
    // As torchrun does: a script beside us, executable or not.
    if (script && is_file(word)) return with_python(std::move(words), request, env);
    if (const auto path = search(word, request.folders)) return {*path, std::move(words)};
    not_found(word, request.folders, env);
  }
  std::error_code ignored;
  if (fs::is_directory(word, ignored)) throw NoProgram(fmt::format("'{}' is a folder, not a program", printable(word)), kExitNotExecutable);
  if (!is_file(word)) not_found(word, {}, env);
  if (!is_program(word)) throw NoProgram(fmt::format("'{}' is not executable: chmod +x it", printable(word)), kExitNotExecutable);
  return {word, std::move(words)};
}

}  // namespace cohort::launch
