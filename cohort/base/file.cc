#include "cohort/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"
#include "cohort/base/folder.h"

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
  const FileAt& file;
  std::string name;
  bool kept = false;
  ~Temporary() {
    if (!kept) ::unlinkat(file.fd(), name.c_str(), 0);
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
  write_file_atomically(FileAt(path), content, mode);
}

void write_file_atomically(const FileAt& file, std::string_view content, unsigned mode) {
  Temporary temporary{file, fmt::format("{}.{}.tmp", file.name, unique_name("cohort"))};
  Fd fd{::openat(file.fd(), temporary.name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode)};
  if (!fd) throw_system(fmt::format("create {}", file.path));
  write_all(fd.get(), content, file.path);
  if (fsync(fd.get()) != 0) throw_system(fmt::format("fsync {}", file.path));
  if (::close(fd.release()) != 0) throw_system(fmt::format("close {}", file.path));
  if (::renameat(file.fd(), temporary.name.c_str(), file.fd(), file.name.c_str()) != 0)
    throw_system(fmt::format("rename to {}", file.path));
  temporary.kept = true;
  (file.folder ? *file.folder : Folder(folder_of(file.path))).sync();
}

std::string unique_name(std::string_view prefix) {
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) throw_system("getrandom");
  return fmt::format("{}-{}-{:016x}", prefix, getpid(), random);
}

std::error_code remove_tree(const std::string& path) noexcept { return remove_tree(FileAt(path)); }

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
