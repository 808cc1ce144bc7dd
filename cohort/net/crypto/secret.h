// The key of a job: 32 random bytes shared by all its processes and by nobody else.
// Owner: values; every copy wipes itself. Threads: values, any. Failure: Kind::usage for a file that is no secret or that others may
// read, Kind::system when it cannot be read. It is never printed, never in argv, never in a message: errors name the file only.
#pragma once
#include <array>
#include <cstddef>
#include <string>

#include "cohort/base/bytes.h"

namespace cohort::net {

class Secret {
 public:
  static constexpr std::size_t kBytes = 32;
  Secret() = default;  // empty: refused by every handshake
  static Secret random();
  // Exactly 32 raw bytes, or 64 hex digits with at most one newline. A named file must belong to us or root and be closed to group
  // and others; a file without a name (a memfd through /proc/<pid>/fd/<n>) is already private to those who may open it there.
  static Secret from_file(const std::string& path);
  static Secret from_bytes(ConstBytes bytes);
  ~Secret();
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ConstBytes bytes() const { return std::as_bytes(std::span(key_)); }
  bool empty() const { return !set_; }
  // Whether connections that are made with it go through TLS; must be the same in all processes of a job. Not part of the bytes.
  bool tls() const { return tls_; }
  Secret& use_tls(bool yes) {
    tls_ = yes;
    return *this;
  }

 private:
  std::array<unsigned char, kBytes> key_{};
  bool set_ = false;
  bool tls_ = false;
};

}  // namespace cohort::net
