// YAML as a small tree that knows where everything stood. yaml-cpp decides nothing about types: scalars arrive as they were written.
// One document, no anchors, aliases or tags, bounded size and depth: a configuration, not a programme.
// Owner: values. Threads: any. Failure: Kind::usage with file, line and column.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/bytes.h"

namespace cohort {

inline constexpr std::size_t kYamlMostBytes = 1_MiB;
inline constexpr std::size_t kYamlMostDepth = 32;

struct YamlNode {
  enum class Type { null, scalar, list, map };
  Type type = Type::null;
  int line = 0, column = 0;          // from 1; 0: the document is empty
  std::string text{};                // of a scalar
  bool quoted = false;               // `4` and `"4"` are different things
  std::vector<YamlNode> children{};  // of a map: key, value, key, value ..
};

YamlNode parse_yaml(std::string_view text, std::string_view where);  // where: the file's name, for messages

// "job.yaml:3:8: what" as Kind::usage.
[[noreturn]] void refuse_yaml(std::string_view where, const YamlNode& node, std::string_view what);

}  // namespace cohort
