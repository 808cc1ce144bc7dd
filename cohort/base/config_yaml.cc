// Reading a YAML tree into the field list.
#include <set>

#include "cohort/base/config.h"
#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/base/yaml.h"

namespace cohort {
namespace {

using Type = YamlNode::Type;

Scalar scalar_of(const YamlNode& node, std::string_view path, std::string_view where) {
  const bool null = node.type == Type::null || (!node.quoted && node.type == Type::scalar && (node.text == "~" || node.text == "null"));
  if (null) refuse_yaml(where, node, fmt::format("{} has no value", path));
  if (node.type != Type::scalar) refuse_yaml(where, node, fmt::format("{} takes a single value here", path));
  return {node.text, node.quoted};
}

std::string key_of(const YamlNode& key, std::string_view where, std::set<std::string>& seen) {
  if (key.type != Type::scalar) refuse_yaml(where, key, "a key must be a plain word");
  if (key.text.find('.') != std::string::npos)
    refuse_yaml(where, key, fmt::format("{}: keys have no dots here; nest them", printable(key.text)));
  if (!seen.insert(key.text).second) refuse_yaml(where, key, fmt::format("{} is given twice", printable(key.text)));
  return key.text;
}

}  // namespace

void Config::read_file(const std::string& path) { read_yaml(cohort::read_file(path, kYamlMostBytes), path); }

void Config::read_yaml(std::string_view text, std::string_view where) {
  const auto root = parse_yaml(text, where);
  if (root.type != Type::null) read_map(root, "", where);
}

void Config::read_map(const YamlNode& node, const std::string& prefix, std::string_view where) {
  const auto what = prefix.empty() ? "a configuration" : prefix.substr(0, prefix.size() - 1);
  if (node.type != Type::map) refuse_yaml(where, node, fmt::format("{} must be a map of settings", what));
  std::set<std::string> seen;
  for (std::size_t i = 0; i < node.children.size(); i += 2) {
    const YamlNode& key = node.children[i];
    const YamlNode& value = node.children[i + 1];
    const auto path = prefix + key_of(key, where, seen);
    Field* field = find(path);
    if (field != nullptr)
      read_value(*field, value, where);
    else if (!is_group(path))
      refuse_yaml(where, key, unknown(path));
    else if (value.type != Type::null)
      read_map(value, path + ".", where);
  }
}

void Config::read_value(Field& field, const YamlNode& node, std::string_view where) {
  std::vector<Scalar> values;
  if (!field.is_list()) {
    values.push_back(scalar_of(node, field.path, where));
  } else {
    if (node.type != Type::list) refuse_yaml(where, node, fmt::format("{} is a {}; write [a, b]", field.path, field.type()));
    for (const auto& element : node.children) values.push_back(scalar_of(element, field.path, where));
  }
  try {
    field.assign(values, Source::file);
  } catch (const Failure& failure) {
    refuse_yaml(where, node, fmt::format("{}: {}", field.path, failure.what()));
  }
  if (field.source == Source::file) field.where = fmt::format("{}:{}:{}", where, node.line, node.column);
}

}  // namespace cohort
