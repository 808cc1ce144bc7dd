#include "cohort/base/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "cohort/base/error.h"

namespace cohort {

bool is_link(const FileAt& file) {
  struct stat st {};
  return ::fstatat(file.fd(), file.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

void refuse_link(const std::string& path) {
  throw_failure(Kind::corrupt, "{} is a symbolic link, which is not followed here; put back what it stands for, or remove it", path);
}

Fd open_regular(const FileAt& file, int flags, unsigned mode) {
  Fd fd(::openat(file.fd(), file.name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode));
  if (!fd) {
    const int error = errno;
    if (error == ELOOP && is_link(file)) refuse_link(file.path);
    throw_system(fmt::format("open {}", file.path), error);
  }
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) throw_system(fmt::format("stat {}", file.path));
  if (!S_ISREG(st.st_mode)) throw_failure(Kind::corrupt, "{} is no regular file; remove it, or put back the file it should be", file.path);
  return fd;
}

std::string read_regular_file(const FileAt& file, std::size_t most) {
  const Fd fd = open_regular(file, O_RDONLY);
  std::string content;
  char block[16384];
  for (;;) {
    const auto n = ::read(fd.get(), block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system(fmt::format("read {}", file.path));
    if (n == 0) return content;
    content.append(block, static_cast<std::size_t>(n));
    if (content.size() > most) throw_failure(Kind::usage, "{} is larger than {} bytes; is it the right file?", file.path, most);
  }
}

}  // namespace cohort
