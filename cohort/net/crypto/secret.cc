#include "cohort/net/crypto/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"

namespace cohort::net {
namespace {

// Bytes on the stack that do not stay there.
struct Scratch {
  std::array<unsigned char, 2 * Secret::kBytes + 2> bytes{};  // hex, a newline, and one more to detect a longer file
  ~Scratch() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
};

void check_private(int fd, const std::string& path) {
  struct stat st {};
  if (fstat(fd, &st) != 0) throw_system("job secret '" + path + "'");
  if (!S_ISREG(st.st_mode)) throw_failure(Kind::usage, "job secret '{}' is not a regular file", path);
  if (st.st_uid != geteuid() && st.st_uid != 0)
    throw_failure(Kind::usage, "job secret '{}' belongs to user {}, not to us ({}): make your own copy", path, st.st_uid, geteuid());
  const bool nameless = st.st_nlink == 0;  // a memfd is created with mode 0777, yet has no name to open it by
  if (!nameless && (st.st_mode & 077) != 0)
    throw_failure(Kind::usage, "job secret '{}' can be opened by others (mode {:04o}): chmod 600 it", path, st.st_mode & 07777);
}

std::size_t read_all(int fd, const std::string& path, Scratch& into) {
  std::size_t got = 0;
  while (got < into.bytes.size()) {
    const ssize_t n = read(fd, into.bytes.data() + got, into.bytes.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system("job secret '" + path + "'");
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  return got;
}

int nibble(unsigned char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool decode_hex(const Scratch& text, Scratch& out) {
  for (std::size_t i = 0; i < Secret::kBytes; ++i) {
    const int high = nibble(text.bytes[2 * i]);
    const int low = nibble(text.bytes[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out.bytes[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return true;
}

}  // namespace

Secret Secret::random() {
  Secret s;
  if (getrandom(s.key_.data(), s.key_.size(), 0) != static_cast<ssize_t>(s.key_.size())) throw_system("getrandom for the job secret");
  s.set_ = true;
  return s;
}

Secret Secret::from_file(const std::string& path) {
  const Fd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // O_NONBLOCK: open() of a fifo must not block
  if (!fd) throw_system("job secret '" + path + "'");
  check_private(fd.get(), path);
  Scratch text;
  const std::size_t got = read_all(fd.get(), path, text);
  if (got == kBytes) return from_bytes(std::as_bytes(std::span(text.bytes).first(kBytes)));
  Scratch raw;
  const bool hex_length = got == 2 * kBytes || (got == 2 * kBytes + 1 && text.bytes[2 * kBytes] == '\n');
  if (!hex_length || !decode_hex(text, raw))
    throw_failure(Kind::usage, "job secret '{}' must hold 32 raw bytes or 64 hex digits: head -c 32 /dev/urandom > it", path);
  return from_bytes(std::as_bytes(std::span(raw.bytes).first(kBytes)));
}

Secret Secret::from_bytes(ConstBytes bytes) {
  if (bytes.size() != kBytes) throw_failure(Kind::usage, "a job secret has {} bytes, not {}", kBytes, bytes.size());
  Secret s;
  std::memcpy(s.key_.data(), bytes.data(), kBytes);
  s.set_ = true;
  return s;
}

Secret::~Secret() { OPENSSL_cleanse(key_.data(), key_.size()); }

}  // namespace cohort::net
