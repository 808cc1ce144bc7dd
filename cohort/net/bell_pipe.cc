#include "cohort/net/bell_pipe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "cohort/base/error.h"

namespace cohort::net {
namespace {

// Read and write on one descriptor: whoever holds it is a reader too, so writing never raises SIGPIPE when the owner is gone.
Fd open_both_ways(const std::string& path) {
  Fd fd{::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC)};
  if (!fd) throw_system(fmt::format("bell {}", path));
  struct stat st {};
  if (fstat(fd.get(), &st) != 0 || !S_ISFIFO(st.st_mode)) throw_failure(Kind::system, "bell {}: not a pipe", path);
  return fd;
}

}  // namespace

Fd make_bell() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw_system("pipe");
  const Fd in{ends[0]}, out{ends[1]};
  return open_both_ways(fmt::format("/proc/self/fd/{}", in.get()));
}

Fd open_bell(std::int64_t pid, int fd) { return open_both_ways(fmt::format("/proc/{}/fd/{}", pid, fd)); }

void ring_bell(int fd) noexcept {
  const char word = 1;
  [[maybe_unused]] const auto full_is_fine = write(fd, &word, 1);
}

void hush_bell(int fd) noexcept {
  char words[64];
  while (read(fd, words, sizeof words) == static_cast<ssize_t>(sizeof words)) {
  }
}

}  // namespace cohort::net
