#include "cohort/base/config.h"

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort {

std::string_view source_name(Source source) {
  constexpr std::string_view kNames[] = {"default", "file", "environment", "command line"};
  return kNames[static_cast<int>(source)];
}

std::string FieldList::claim(std::string_view name) const {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(),
                                                  [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
  if (!plain) throw_failure(Kind::bug, "field '{}{}': names are lower case words joined by _", prefix_, name);
  const auto flat = [](std::string path) {  // also what environment variables are made of
    std::replace(path.begin(), path.end(), '.', '_');
    return path;
  };
  auto path = prefix_ + std::string(name);
  const auto taken = [&](const auto& other) { return flat(other.path) == flat(path); };
  if (std::any_of(fields_.begin(), fields_.end(), taken) || std::any_of(groups_.begin(), groups_.end(), taken))
    throw_failure(Kind::bug, "field '{}' is listed twice", path);
  return path;
}

void FieldList::add(std::string_view name, FieldTarget target, Range range, Words words, std::string_view doc) {
  Field field{claim(name), std::string(doc), target, range, std::move(words)};
  field.preset = field.values();
  fields_.push_back(std::move(field));
}

std::string FieldList::open_group(std::string_view name, std::string_view doc) {
  groups_.push_back({claim(name), std::string(doc)});
  auto outer = prefix_;
  prefix_ = groups_.back().path + ".";
  return outer;
}

Field* Config::find(std::string_view path) {
  const auto at = std::find_if(list_.fields_.begin(), list_.fields_.end(), [&](const Field& f) { return f.path == path; });
  return at == list_.fields_.end() ? nullptr : &*at;
}

bool Config::is_group(std::string_view path) const {
  return std::any_of(list_.groups_.begin(), list_.groups_.end(), [&](const FieldGroup& g) { return g.path == path && !path.empty(); });
}

std::string Config::unknown(std::string_view path) const {
  for (const auto& [was, now] : list_.renamed_)
    if (was == path) return fmt::format("{} is called {} now", path, now);
  if (is_group(path)) return fmt::format("{} is a group; set one of its fields, like {}.name", path, path);
  std::vector<std::string_view> known;
  for (const Field& f : list_.fields_) known.push_back(f.path);
  return unknown_text("setting", path, known);
}

void Config::set(std::string_view assignment) {
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos) throw_failure(Kind::usage, "'{}' is no override; write key.path=value", printable(assignment));
  set(trim(assignment.substr(0, equals)), assignment.substr(equals + 1), Source::command_line, assignment);
}

void Config::set(std::string_view path, std::string_view value, Source source, std::string_view where) {
  Field* found = find(path);
  if (found == nullptr) throw_failure(Kind::usage, "{}: {}", printable(where), unknown(path));
  Field& f = *found;
  // A shell has its own quotes: text arrives as text, and numbers are never "quoted".
  const bool textual = std::holds_alternative<std::string*>(f.target) || std::holds_alternative<std::vector<std::string>*>(f.target);
  std::vector<Scalar> scalars;
  if (f.is_list()) {
    for (const auto part : split(value, ',')) scalars.push_back({std::string(trim(part)), textual});
  } else {
    scalars.push_back({std::string(value), textual});
  }
  try {
    f.assign(scalars, source);
  } catch (const Failure& failure) {
    throw_failure(Kind::usage, "{}: {}: {}", printable(where), path, failure.what());
  }
  if (f.source == source) f.where = where;
}

void Config::read_environment(std::string_view prefix, const std::function<const char*(const char*)>& lookup) {
  const auto name_of = [&](const std::string& path) {
    std::string name = std::string(prefix) + path;
    for (char& c : name) c = c == '.' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    return name;
  };
  for (const Field& f : list_.fields_) {
    const std::string name = name_of(f.path);
    if (const char* value = lookup(name.c_str())) set(f.path, value, Source::environment, name);
  }
  for (const auto& [was, now] : list_.renamed_)
    if (const std::string name = name_of(was); lookup(name.c_str()) != nullptr)
      throw_failure(Kind::usage, "{}: {}: set {} instead", name, unknown(was), name_of(now));
}

}  // namespace cohort
