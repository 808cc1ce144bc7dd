#include "cohort/checkpoint/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "cohort/base/error.h"
#include "cohort/checkpoint/store.h"

namespace cohort::checkpoint {
namespace {

bool is_link(const std::string& path) {
  struct stat st {};
  return ::lstat(path.c_str(), &st) == 0 && S_ISLNK(st.st_mode);
}

[[noreturn]] void refuse_link(const std::string& path) {
  throw_failure(Kind::corrupt, "{} is a symbolic link, which is not followed here; put back what it stands for, or remove it", path);
}

}  // namespace

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

void refuse_linked_step(const std::string& folder) {
  if (step_of_name(std::filesystem::path(folder).filename().string()) && is_link(folder)) refuse_link(folder);
}

}  // namespace cohort::checkpoint
