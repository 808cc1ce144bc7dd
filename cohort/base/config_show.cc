// What a field list can say about itself: help, the reference page, a JSON Schema, and the effective file.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cohort/base/config.h"
#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;

std::string_view parent_of(std::string_view path) {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : path.substr(0, dot);
}
std::string_view leaf_of(std::string_view path) { return path.substr(path.rfind('.') + 1); }

std::string preset_text(const Field& f) { return join(f.preset, ","); }

std::string type_text(const Field& f) {
  const auto allowed = f.allowed();
  return allowed.empty() ? std::string(f.type()) : fmt::format("{}, {}", f.type(), allowed);
}

// A list item of Markdown, in lines of at most 120 characters where its words allow it.
std::string list_item(std::string_view text) {
  constexpr std::size_t kWidth = 120;
  std::string out, line = "-";
  for (const auto word : split(text, ' ')) {
    if (line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line = " ";
    }
    line += fmt::format(" {}", word);
  }
  return out + line + "\n";
}

std::string json_text(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

// Text and words in quotes, always: no word of theirs can then mean something else in YAML.
std::string yaml_value(const Field& f, std::vector<std::string> values) {
  const bool textual = f.type().ends_with("text") || f.type().ends_with("texts") || f.type() == "word";
  if (textual)
    for (auto& value : values) value = json_text(value);
  return f.is_list() ? "[" + join(values, ", ") + "]" : values.front();
}

std::string source_text(const Field& f) {
  if (f.where.empty()) return std::string(source_name(f.source));
  return fmt::format("{}, {}", source_name(f.source), printable(f.where));
}

Json schema_of(const Field& f) {
  const auto type = f.type();
  const auto has = [&](std::string_view word) { return type.find(word) != std::string_view::npos; };
  Json one;
  if (has("true"))
    one["type"] = "boolean";
  else if (has("integer"))
    one["type"] = "integer";
  else if (has("real"))
    one["type"] = "number";
  else if (has("size"))
    one["type"] = {"string", "integer"};
  else if (has("time"))
    one["type"] = {"string", "number"};
  else
    one["type"] = "string";
  if (!f.words.empty()) one["enum"] = f.words;
  if (one["type"].is_string() && f.range.low > Range{}.low) one["minimum"] = f.range.low;  // 64KiB is no number to compare
  if (one["type"].is_string() && f.range.high < Range{}.high) one["maximum"] = f.range.high;
  Json out = f.is_list() ? Json{{"type", "array"}, {"items", one}} : one;
  out["description"] = f.doc;
  const bool units = has("size") || has("time");
  out["default"] = units && f.is_list() ? Json(f.preset) : units ? Json(f.preset.front()) : Json::parse(yaml_value(f, f.preset));
  return out;
}

}  // namespace

std::string Config::help() const {
  std::size_t path_width = 0, type_width = 0, preset_width = 0;
  for (const Field& f : all()) {
    path_width = std::max(path_width, f.path.size());
    type_width = std::max(type_width, type_text(f).size());
    preset_width = std::max(preset_width, preset_text(f).size());
  }
  std::string out;
  for (const Field& f : all())
    out += fmt::format("  {:<{}}  {:<{}}  {:<{}}  {}\n", f.path, path_width, type_text(f), type_width, preset_text(f), preset_width, f.doc);
  return out;
}

std::string Config::markdown() const {
  std::string out;
  for (const FieldGroup& group : list_.groups_) {
    std::string items;
    for (const Field& f : all()) {
      if (parent_of(f.path) != group.path) continue;
      const auto preset = preset_text(f).empty() ? "" : fmt::format("; default `{}`", preset_text(f));
      items += list_item(fmt::format("**`{}`** ({}{}): {}", f.path, type_text(f), preset, f.doc));
    }
    if (!group.path.empty()) out += fmt::format("\n### {}\n\n{}\n", group.path, group.doc);
    if (!items.empty()) out += "\n" + items;
  }
  return out.substr(out.starts_with('\n') ? 1 : 0);
}

std::string Config::json_schema() const {
  Json root{{"$schema", "https://json-schema.org/draft/2020-12/schema"}};
  const auto node_for = [&](std::string_view path) -> Json& {
    Json* node = &root;
    for (const auto name : split(path, '.')) node = &(*node)["properties"][std::string(name)];
    return *node;
  };
  for (const FieldGroup& group : list_.groups_) {
    Json& node = node_for(group.path);
    node["type"] = "object";
    if (!group.doc.empty()) node["description"] = group.doc;
    node["additionalProperties"] = false;
  }
  for (const Field& f : all()) node_for(f.path) = schema_of(f);
  return root.dump(2) + "\n";
}

std::string Config::yaml() const {
  std::string out;
  std::vector<std::string_view> open;  // the groups the last line stood in
  for (const Field& f : all()) {
    const auto groups = split(parent_of(f.path), '.');
    const auto same =
        static_cast<std::size_t>(std::mismatch(groups.begin(), groups.end(), open.begin(), open.end()).first - groups.begin());
    for (std::size_t i = same; i < groups.size(); ++i) out += fmt::format("{:{}}{}:\n", "", 2 * i, groups[i]);
    open = groups;
    out += fmt::format("{:{}}{}: {}  # {}\n", "", 2 * groups.size(), leaf_of(f.path), yaml_value(f, f.values()), source_text(f));
  }
  return out;
}

}  // namespace cohort
