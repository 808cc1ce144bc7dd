// Configuration from one list of fields. A struct says its fields once, in a function found beside it:
//   struct Run { int n = 1; Seconds timeout{300}; Binding bind; };
//   void fields(Run& c, FieldList& f) {
//     f("n", c.n, Range{1, 4096}, "ranks to start");
//     f("timeout", c.timeout, "longest silence before a rank is given up");
//     f("bind", c.bind, "where ranks run");            // a struct with a fields() of its own
//   }
// and from that come YAML, `key.path=value` overrides, the environment, help, the reference page, a JSON Schema and the effective file.
// Owner: Config borrows the struct and must not outlive it. Threads: one. Failure: Kind::usage with file, line and column, the nearest
// name for an unknown key; afterwards the struct may hold a part of the input. Nothing is guessed: `no` is no bool, `010` no integer.
// To add a field type: FieldTarget here, then read_one, write_one and a row of kTypes in config_field.cc.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "cohort/base/deadline.h"

namespace cohort {

struct YamlNode;

// A number of bytes, so that `chunk: 1MiB` is read as a size and not as a count.
struct ByteSize {
  std::size_t value = 0;
  constexpr operator std::size_t() const { return value; }  // NOLINT(google-explicit-constructor): it is a size_t with units
};

struct Range {  // both ends included; of seconds and bytes too
  double low = std::numeric_limits<double>::lowest();
  double high = std::numeric_limits<double>::max();
};
using Words = std::vector<std::string>;

// An enum whose enumerators 0, 1, 2 .. are called words[0], words[1], ..
struct EnumTarget {
  void* at;
  void (*set)(void* at, std::size_t index);
  std::size_t (*get)(const void* at);
};
using FieldTarget = std::variant<bool*, int*, std::int64_t*, double*, std::string*, Seconds*, ByteSize*, EnumTarget, std::vector<int>*,
                                 std::vector<double>*, std::vector<std::string>*, std::vector<Seconds>*, std::vector<ByteSize>*>;

enum class Source { preset, file, environment, command_line };  // a later one wins, whatever the order of reading
std::string_view source_name(Source source);                    // "default", "file", "environment", "command line"

// A value as written: `4` and `"4"` are different things in YAML.
struct Scalar {
  std::string text;
  bool quoted = false;
};

struct Field {
  std::string path;  // "bind.cores"
  std::string doc;
  FieldTarget target;
  Range range;
  Words words;
  std::vector<std::string> preset{};  // the default's values()
  Source source = Source::preset;
  std::string where{};  // "job.yaml:3:8", "COHORT_N", "n=4"

  bool is_list() const;
  std::string_view type() const;            // "integer", "list of sizes"
  std::string allowed() const;              // "1..4096", "auto, shm, tcp"; empty when anything goes
  std::vector<std::string> values() const;  // one, or the list's
  std::string text() const;                 // values() joined by commas: what set() takes
  void assign(std::span<const Scalar> values,
              Source from);  // checks always, keeps what a stronger source said; Kind::usage without the path
};

struct FieldGroup {
  std::string path, doc;
};

// What fields() adds its fields to.
class FieldList {
 public:
  template <class T>
  void operator()(std::string_view name, T& value, Range range, std::string_view doc) {
    add(name, &value, range, {}, doc);
  }
  template <class T>
  void operator()(std::string_view name, T& value, std::string_view doc) {
    if constexpr (std::is_constructible_v<FieldTarget, T*>) {
      add(name, &value, {}, {}, doc);
    } else {
      auto outer = open_group(name, doc);
      fields(value, *this);  // found beside T
      prefix_ = std::move(outer);
    }
  }
  template <class T>
  void operator()(std::string_view name, T& value, Words words, std::string_view doc) {
    if constexpr (std::is_enum_v<T>) {
      const EnumTarget target{&value, [](void* at, std::size_t index) { *static_cast<T*>(at) = static_cast<T>(index); },
                              [](const void* at) { return static_cast<std::size_t>(*static_cast<const T*>(at)); }};
      add(name, target, {}, std::move(words), doc);
    } else {
      add(name, &value, {}, std::move(words), doc);  // a string or a list of strings
    }
  }

  // A setting's former name (in this group) is refused, and the refusal says what it is called now.
  void renamed(std::string_view was, std::string_view now) { renamed_.push_back({prefix_ + std::string(was), std::string(now)}); }

 private:
  friend class Config;
  struct Renamed {
    std::string was, now;  // whole paths
  };
  void add(std::string_view name, FieldTarget target, Range range, Words words, std::string_view doc);
  std::string open_group(std::string_view name, std::string_view doc);  // returns the prefix to go back to
  std::string claim(std::string_view name) const;                       // the full path; Kind::bug when it is taken or malformed

  std::string prefix_;  // "bind." inside the group bind
  std::vector<Field> fields_;
  std::vector<FieldGroup> groups_{{"", ""}};
  std::vector<Renamed> renamed_;
};

class Config {
 public:
  template <class Struct>
  explicit Config(Struct& values) {
    fields(values, list_);
  }

  void read_yaml(std::string_view text, std::string_view where);  // where: the file's name, for messages
  void read_file(const std::string& path);
  void set(std::string_view assignment);  // from the command line: "bind.cores=2", "sizes=1MiB,4MiB"
  void set(std::string_view path, std::string_view value, Source source, std::string_view where);
  // COHORT_BIND_CORES for bind.cores with the prefix COHORT_. lookup is getenv or a test's own.
  void read_environment(std::string_view prefix, const std::function<const char*(const char*)>& lookup);

  const std::vector<Field>& all() const { return list_.fields_; }
  std::string help() const;         // a text table
  std::string markdown() const;     // the reference page
  std::string json_schema() const;  // draft 2020-12
  std::string yaml() const;         // the effective file, each value with its source; read_yaml takes it back

 private:
  Field* find(std::string_view path);
  bool is_group(std::string_view path) const;
  std::string unknown(std::string_view path) const;  // what to say about a path that is no field
  void read_map(const YamlNode& node, const std::string& prefix, std::string_view where);
  void read_value(Field& field, const YamlNode& node, std::string_view where);

  FieldList list_;
};

}  // namespace cohort
