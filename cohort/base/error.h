// The one exception type of the library.
// A message says what went wrong, where, to whom, and what to do next. The library never exits the process.
// Threads: values, any. To add a kind: one enumerator here, one word in kind_name().
#pragma once
#include <fmt/format.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "cohort/base/ids.h"

namespace cohort {

enum class Kind {
  usage,      // the caller asked for something that cannot be: wrong flag, mismatched call, unknown name
  peer_lost,  // a peer died or left while it was needed
  timeout,    // a deadline passed
  aborted,    // somebody called abort(), here or on a peer
  corrupt,    // bytes that do not mean what they must: bad frame, bad checksum, failed handshake
  system,     // the operating system refused: out of memory, no such file, address in use
  bug,        // cohort broke its own promise
};
std::string_view kind_name(Kind kind);

struct Error {
  Kind kind = Kind::bug;
  std::string what;
  Rank rank = kNoRank;  // whom it is about, where that is known
};

class Failure : public std::exception {
 public:
  explicit Failure(Error error) : error_(std::move(error)) {}
  const Error& error() const { return error_; }
  Kind kind() const { return error_.kind; }
  const char* what() const noexcept override { return error_.what.c_str(); }

 private:
  Error error_;
};

// throw_failure(Kind::usage, "count {} is odd", n)
template <class... Args>
[[noreturn]] void throw_failure(Kind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{{kind, fmt::format(format, std::forward<Args>(args)...), kNoRank}};
}

// "open /x: No such file or directory" from the current errno (or the one given).
[[noreturn]] void throw_system(std::string_view what);
[[noreturn]] void throw_system(std::string_view what, int error_number);

}  // namespace cohort
