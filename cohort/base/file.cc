#include "cohort/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <ftw.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"

namespace cohort {
namespace {

void write_all(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const auto n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system(fmt::format("write {}", path));
    content.remove_prefix(static_cast<std::size_t>(n));
  }
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Unlinks on the way out unless the file has been renamed to its place.
struct Temporary {
  std::string path;
  bool kept = false;
  ~Temporary() {
    if (!kept) ::unlink(path.c_str());
  }
};

}  // namespace

std::string read_file(const std::string& path, std::size_t most) {
  const Fd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!fd) throw_system(fmt::format("open {}", path));
  const auto too_large = [&]() { throw_failure(Kind::usage, "{} is larger than {} bytes; is it the right file?", path, most); };
  struct stat st {};
  if (fstat(fd.get(), &st) != 0) throw_system(fmt::format("stat {}", path));
  if (S_ISDIR(st.st_mode)) throw_system(fmt::format("read {}", path), EISDIR);
  if (static_cast<std::size_t>(st.st_size) > most) too_large();
  std::string content;
  char block[16384];  // files under /proc say that they are empty: read until the end, whatever the size said
  for (;;) {
    const auto n = ::read(fd.get(), block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system(fmt::format("read {}", path));
    if (n == 0) return content;
    if (content.size() + static_cast<std::size_t>(n) > most) too_large();
    content.append(block, static_cast<std::size_t>(n));
  }
}

void write_file_atomically(const std::string& path, std::string_view content, unsigned mode) {
  Temporary temporary{fmt::format("{}.{}.tmp", path, unique_name("cohort"))};
  Fd fd{::open(temporary.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode)};
  if (!fd) throw_system(fmt::format("create {}", temporary.path));
  write_all(fd.get(), content, path);
  if (fsync(fd.get()) != 0) throw_system(fmt::format("fsync {}", path));
  if (::close(fd.release()) != 0) throw_system(fmt::format("close {}", path));
  if (::rename(temporary.path.c_str(), path.c_str()) != 0) throw_system(fmt::format("rename to {}", path));
  temporary.kept = true;
  const Fd folder{::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!folder) throw_system(fmt::format("open {} to make {} durable", folder_of(path), path));
  if (fsync(folder.get()) != 0 && errno != EINVAL)
    throw_system(fmt::format("fsync {}", folder_of(path)));  // EINVAL: a file system without it
}

std::string unique_name(std::string_view prefix) {
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) throw_system("getrandom");
  return fmt::format("{}-{}-{:016x}", prefix, getpid(), random);
}

std::error_code remove_tree(const std::string& path) noexcept {
  constexpr int kOpenFolders = 16;  // at a time; deeper trees take longer
  const auto each = [](const char* name, const struct stat*, int, FTW*) { return std::remove(name) == 0 || errno == ENOENT ? 0 : -1; };
  if (::nftw(path.c_str(), each, kOpenFolders, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return {};
  return {errno, std::generic_category()};
}

TempDir::TempDir(std::string_view prefix) : owner_pid_(getpid()) {
  std::error_code error;
  const auto base = std::filesystem::temp_directory_path(error).string();
  path_ = fmt::format("{}/{}", error ? "/tmp" : base, unique_name(prefix));
  if (mkdir(path_.c_str(), 0700) != 0) throw_system(fmt::format("mkdir {}", path_));
}

TempDir::~TempDir() {
  if (getpid() == owner_pid_) remove_tree(path_);
}

}  // namespace cohort
