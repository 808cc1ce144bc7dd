// Spec strings: a variant and its parameters in one line, `topk(ratio=0.01)`, `hierarchical(inner=shm, outer=ring(chunk=1MiB))`.
//   spec  = name [ "(" [ key "=" value { "," key "=" value } ] ")" ]        blanks allowed between tokens
//   value = bare word | spec with parentheses | "quoted, with \" and \\ escapes"
// A variant's file holds its SpecSchema (names, types, ranges, defaults, docs); read() turns a Spec into checked values.
// Owner: values. Threads: any. Failure: Kind::usage quoting the text and the column. To add a type: SpecParam, check() in spec_schema.cc,
// and an accessor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/deadline.h"

namespace cohort {

inline constexpr std::size_t kSpecMostBytes = 4096;  // longer text is refused unread
inline constexpr int kSpecMostDepth = 8;             // specs within specs

struct Spec {
  struct Param {
    std::string key;
    std::string value;           // canonical text; quotes taken off
    bool nested = false;         // the value is a spec with parentheses
    std::size_t key_column = 0;  // in `text`, from 1; 0 when the Spec was not parsed
    std::size_t column = 0;      // of the value
    bool operator==(const Param& other) const { return key == other.key && value == other.value && nested == other.nested; }
  };
  std::string name;
  std::vector<Param> params;  // in the order written, keys unique
  std::string text;           // what was parsed: columns refer to it

  static Spec parse(std::string_view text);
  std::string to_string() const;  // the one canonical form; parse(to_string()) == *this
  const Param* find(std::string_view key) const;
  bool operator==(const Spec& other) const { return name == other.name && params == other.params; }
};

// One parameter of a variant, as its schema lists it. No default: it must be given.
struct SpecParam {
  enum class Type { integer, real, boolean, bytes, seconds, word, text, spec };
  std::string name;
  Type type = Type::text;
  std::string doc;
  std::optional<std::string> preset{};  // the default, as one would write it
  double low = std::numeric_limits<double>::lowest();
  double high = std::numeric_limits<double>::max();
  std::vector<std::string> words{};  // Type::word only
};

// Values that passed their schema. Asking for a name or type that the schema does not list is Kind::bug.
class SpecValues {
 public:
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  bool boolean(std::string_view name) const;
  std::size_t bytes(std::string_view name) const;
  Seconds seconds(std::string_view name) const;
  const std::string& word(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  Spec spec(std::string_view name) const;

 private:
  friend class SpecSchema;
  struct Value {
    std::string name;
    SpecParam::Type type;
    std::string text;
  };
  const std::string& value(std::string_view name, SpecParam::Type type) const;
  std::vector<Value> values_;
};

class SpecSchema {
 public:
  SpecSchema(std::string name, std::string doc, std::vector<SpecParam> params = {});
  const std::string& name() const { return name_; }
  const std::string& doc() const { return doc_; }
  const std::vector<SpecParam>& params() const { return params_; }

  // Unknown keys, missing parameters, wrong types and values out of range are refused.
  SpecValues read(const Spec& spec) const;
  std::string help() const;  // a line for the variant and one per parameter

 private:
  std::string name_, doc_;
  std::vector<SpecParam> params_;
};

}  // namespace cohort
