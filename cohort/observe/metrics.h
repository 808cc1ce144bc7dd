// metrics.jsonl: one JSON object a line, written through at once, so that `tail -f | jq` and pandas.read_json(lines=True) see every step.
//   {"time":1731683642.25,"step":120,"loss":0.412,"lr":null,"nonfinite":{"lr":"nan"}}
// JSON has no nan and inf: such a value is null, and the field "nonfinite" at the end of the line says which it was ("nan", "inf", "-inf").
// A restarted job goes on in the same file; half a line that a killed job left is cut off. A full disk: append_file.h.
// Owner: rank 0 as a rule. Threads: any. Failure: the constructor Kind::system; write() Kind::usage for a name given twice or reserved.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "cohort/observe/append_file.h"

namespace cohort::observe {

struct Field {
  using Value = std::variant<bool, std::int64_t, std::uint64_t, double, std::string>;
  std::string name;
  Value value;

  Field(std::string_view n, bool v) : name(n), value(v) {}
  template <std::signed_integral T>
  Field(std::string_view n, T v) : name(n), value(static_cast<std::int64_t>(v)) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Field(std::string_view n, T v) : name(n), value(static_cast<std::uint64_t>(v)) {}
  template <std::floating_point T>
  Field(std::string_view n, T v) : name(n), value(static_cast<double>(v)) {}
  Field(std::string_view n, const char* v) : name(n), value(std::string(v)) {}
  Field(std::string_view n, std::string_view v) : name(n), value(std::string(v)) {}
  Field(std::string_view n, const std::string& v) : name(n), value(v) {}
};

// The line with its newline. "time" (seconds since 1970) and "nonfinite" are reserved.
std::string metrics_line(double unix_time, std::span<const Field> fields);

double unix_time();  // now, by the system's clock

class MetricsFile {
 public:
  explicit MetricsFile(std::string path, std::function<double()> clock = unix_time);
  void write(std::span<const Field> fields);
  void write(std::initializer_list<Field> fields) { write(std::span(fields.begin(), fields.size())); }
  std::uint64_t lost() const;

 private:
  std::function<double()> clock_;
  mutable std::mutex mutex_;
  AppendFile file_;  // guarded by mutex_
};

}  // namespace cohort::observe
