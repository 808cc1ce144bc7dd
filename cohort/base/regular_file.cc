#include "cohort/base/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "cohort/base/error.h"

namespace cohort {
namespace {

// After openat() of a folder failed, with this error.
[[noreturn]] void refuse_folder(const std::string& path, int error) {
  if ((error == ELOOP || error == ENOTDIR) && is_link(path)) refuse_link(path);
  if (error == ENOTDIR) throw_failure(Kind::corrupt, "{} is no folder; remove it, or put back the folder it should be", path);
  throw_system(fmt::format("open {}", path), error);
}

}  // namespace

bool is_link(const std::string& path) {
  struct stat st {};
  return ::lstat(path.c_str(), &st) == 0 && S_ISLNK(st.st_mode);
}

void refuse_link(const std::string& path) {
  throw_failure(Kind::corrupt, "{} is a symbolic link, which is not followed here; put back what it stands for, or remove it", path);
}

Fd open_regular(const std::string& path, int flags, unsigned mode) {
  Fd file(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode));
  if (!file) {
    const int error = errno;
    if (error == ELOOP && is_link(path)) refuse_link(path);
    throw_system(fmt::format("open {}", path), error);
  }
  struct stat st {};
  if (::fstat(file.get(), &st) != 0) throw_system(fmt::format("stat {}", path));
  if (!S_ISREG(st.st_mode)) throw_failure(Kind::corrupt, "{} is no regular file; remove it, or put back the file it should be", path);
  return file;
}

std::string read_regular_file(const std::string& path, std::size_t most) {
  const Fd file = open_regular(path, O_RDONLY);
  std::string content;
  char block[16384];
  for (;;) {
    const auto n = ::read(file.get(), block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system(fmt::format("read {}", path));
    if (n == 0) return content;
    content.append(block, static_cast<std::size_t>(n));
    if (content.size() > most) throw_failure(Kind::usage, "{} is larger than {} bytes; is it the right file?", path, most);
  }
}

Fd open_folder_in(const std::string& folder, const std::string& name, unsigned mode) {
  const std::string path = fmt::format("{}/{}", folder, name);
  const Fd above(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!above) throw_system(fmt::format("open {}", folder));
  if (::mkdirat(above.get(), name.c_str(), mode) != 0 && errno != EEXIST) throw_system(fmt::format("mkdir {}", path));
  Fd inner(::openat(above.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!inner) refuse_folder(path, errno);
  return inner;
}

void refuse_in_place_of_folder(const std::string& path) {
  const Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder && errno != ENOENT) refuse_folder(path, errno);
}

}  // namespace cohort
