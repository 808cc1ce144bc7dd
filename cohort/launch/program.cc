#include "cohort/launch/program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "cohort/base/text.h"
#include "cohort/launch/exit_codes.h"

namespace cohort::launch {
namespace {

namespace fs = std::filesystem;

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

std::optional<std::string> search_path(const std::string& name, const group::Environment& env) {
  for (const auto& folder : folders_of_path(env))
    if (const std::string path = folder + "/" + name; is_program(path)) return path;
  return std::nullopt;
}

// The name in these folders that was most likely meant.
std::string nearest_file(const std::string& name, const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  for (const auto& folder : folders) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().filename().string());
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  return std::string(nearest(name, views));
}

[[noreturn]] void not_found(const std::string& word, const group::Environment& env) {
  const auto slash = word.rfind('/');
  std::string hint;
  if (slash == word.npos) {
    hint = is_file(word) ? "./" + word : nearest_file(word, folders_of_path(env));
    if (hint.empty()) hint = nearest_file(word, {"."});
  } else if (hint = nearest_file(word.substr(slash + 1), {word.substr(0, slash + 1)}); !hint.empty()) {
    hint = word.substr(0, slash + 1) + hint;
  }
  throw NoProgram(fmt::format("cannot find '{}'{}{}", printable(word), slash == word.npos ? " in PATH" : "",
                              hint.empty() ? "" : fmt::format("; did you mean '{}'?", hint)),
                  kExitNotFound);
}

std::string find_python(const group::Environment& env) {
  const std::string wanted = value_of(env, "PYTHON_EXEC", "");
  if (!wanted.empty()) {
    if (wanted.find('/') != wanted.npos && is_program(wanted)) return wanted;
    if (const auto path = search_path(wanted, env)) return *path;
    throw NoProgram(fmt::format("PYTHON_EXEC={} is no program", printable(wanted)), kExitNotFound);
  }
  for (const char* name : {"python3", "python"})
    if (const auto path = search_path(name, env)) return *path;
  throw NoProgram("no python3 in PATH; set PYTHON_EXEC to your interpreter", kExitNotFound);
}

Program with_python(std::vector<std::string> words, const group::Environment& env) {
  const std::string python = find_python(env);
  words.insert(words.begin(), python);
  return {python, std::move(words)};
}

}  // namespace

Program find_program(const ProgramRequest& request, const group::Environment& env) {
  std::vector<std::string> words = request.command;
  if (request.module) {
    words.insert(words.begin(), "-m");
    return with_python(std::move(words), env);
  }
  const std::string word = words[0];
  const bool script = word.ends_with(".py") && !request.no_python;
  if (script && is_file(word) && !is_program(word)) return with_python(std::move(words), env);
  if (word.find('/') == word.npos) {
    if (const auto path = search_path(word, env)) return {*path, std::move(words)};
    // As torchrun does: a script beside us, executable or not.
    if (script && is_file(word)) return with_python(std::move(words), env);
    not_found(word, env);
  }
  std::error_code ignored;
  if (fs::is_directory(word, ignored)) throw NoProgram(fmt::format("'{}' is a folder, not a program", printable(word)), kExitNotExecutable);
  if (!is_file(word)) not_found(word, env);
  if (!is_program(word)) throw NoProgram(fmt::format("'{}' is not executable: chmod +x it", printable(word)), kExitNotExecutable);
  return {word, std::move(words)};
}

}  // namespace cohort::launch
