#include "cohort/net/shm/wake_pipe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "cohort/base/error.h"

namespace cohort::net {
namespace {

// Read and write on one descriptor: every holder is a reader too, so writing never raises SIGPIPE when the owner is gone.
Fd open_both_ways(const std::string& path) {
  Fd fd{::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC)};
  if (!fd) throw_system(fmt::format("wake pipe {}", path));
  struct stat st {};
  if (fstat(fd.get(), &st) != 0 || !S_ISFIFO(st.st_mode)) throw_failure(Kind::system, "wake pipe {}: not a pipe", path);
  return fd;
}

}  // namespace

Fd make_wake_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw_system("pipe");
  const Fd in{ends[0]}, out{ends[1]};
  return open_both_ways(fmt::format("/proc/self/fd/{}", in.get()));
}

Fd open_wake_pipe(std::int64_t pid, int fd) { return open_both_ways(fmt::format("/proc/{}/fd/{}", pid, fd)); }

void notify_wake_pipe(int fd) noexcept {
  const char byte = 1;
  [[maybe_unused]] const auto full_is_fine = write(fd, &byte, 1);
}

void drain_wake_pipe(int fd) noexcept {
  char bytes[64];
  while (read(fd, bytes, sizeof bytes) == static_cast<ssize_t>(sizeof bytes)) {
  }
}

}  // namespace cohort::net
