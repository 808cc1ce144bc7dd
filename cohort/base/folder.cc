#include "cohort/base/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/regular_file.h"

namespace cohort {
namespace {

constexpr int kOpen = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

bool is_dots(const char* name) { return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0; }

// With a position of its own; nullptr: errno says why.
DIR* open_list(int above, const char* name) noexcept {
  const int fd = ::openat(above, name, kOpen | O_NOFOLLOW);
  DIR* const list = fd < 0 ? nullptr : ::fdopendir(fd);
  if (list == nullptr && fd >= 0) ::close(fd);
  return list;
}

}  // namespace

Folder::Folder(std::string path, int own) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  if (own > 0) {
    const auto slash = path_.rfind('/');
    const std::string above = slash == std::string::npos ? "." : slash == 0 ? "/" : path_.substr(0, slash);
    fd_ = Folder(above, own - 1).inner(path_.substr(slash + 1)).fd_;  // npos + 1 is 0
    return;
  }
  Fd fd(::open(path_.c_str(), kOpen));
  if (!fd && errno == ENOTDIR) throw_failure(Kind::corrupt, "{} is no folder; remove it, or put back the folder it should be", path_);
  if (!fd) throw_system(fmt::format("open {}", path_));
  fd_ = std::make_shared<const Fd>(std::move(fd));
}

std::optional<Folder> Folder::if_there(const std::string& path, int own) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0 && errno == ENOENT) return std::nullopt;
  return Folder(path, own);
}

Folder Folder::inner(const std::string& name) const {
  Folder found;
  found.path_ = path_of(name);
  Fd fd(::openat(this->fd(), name.c_str(), kOpen | O_NOFOLLOW));
  const int error = errno;
  if (!fd && (error == ELOOP || error == ENOTDIR) && is_link({*this, name})) refuse_link(found.path_);
  if (!fd && error == ENOTDIR) throw_failure(Kind::corrupt, "{} is no folder; remove it, or put back the folder it should be", found.path_);
  if (!fd) throw_system(fmt::format("open {}", found.path_), error);
  found.fd_ = std::make_shared<const Fd>(std::move(fd));
  return found;
}

Folder Folder::make(const std::string& name, unsigned mode) const {
  if (::mkdirat(fd(), name.c_str(), mode) != 0 && errno != EEXIST) throw_system(fmt::format("mkdir {}", path_of(name)));
  return inner(name);
}

bool Folder::has(const std::string& name) const {
  struct stat st {};
  return ::fstatat(fd(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0;
}

std::vector<std::string> Folder::names() const {
  const std::unique_ptr<DIR, int (*)(DIR*)> list(open_list(fd(), "."), ::closedir);
  if (list == nullptr) throw_system(fmt::format("list {}", path_));
  std::vector<std::string> found;
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(list.get());
    if (entry == nullptr && errno != 0) throw_system(fmt::format("list {}", path_));
    if (entry == nullptr) return found;
    if (!is_dots(entry->d_name)) found.emplace_back(entry->d_name);
  }
}

void Folder::rename(const std::string& from, const std::string& to) const {
  if (::renameat(fd(), from.c_str(), fd(), to.c_str()) != 0) throw_system(fmt::format("rename {} to {}", path_of(from), path_of(to)));
}

void Folder::remove_file(const std::string& name) const {
  if (::unlinkat(fd(), name.c_str(), 0) != 0) throw_system(fmt::format("remove {}", path_of(name)));
}

void Folder::sync() const {
  if (::fsync(fd()) != 0 && errno != EINVAL) throw_system(fmt::format("fsync {}", path_));
}

int FileAt::fd() const { return folder ? folder->fd() : AT_FDCWD; }

namespace {

constexpr int kMostDepth = 64;     // each has a descriptor, of which others need some; no folder of ours is deeper than a few
constexpr int kMostPasses = 1000;  // through a folder that another process fills meanwhile

int remove_at(int above, const char* name, int depth) noexcept;

// 0, or the error of the first that cannot be removed.
int remove_names(DIR* list, int depth) noexcept {
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(list);
    if (entry == nullptr) return errno;
    if (is_dots(entry->d_name)) continue;
    if (const int error = remove_at(::dirfd(list), entry->d_name, depth); error != 0) return error;
  }
}

int remove_folder(int above, const char* name, int depth) noexcept {
  if (::unlinkat(above, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return 0;
  if (errno != ENOTEMPTY && errno != EEXIST) return errno;
  if (depth > kMostDepth) return ENAMETOOLONG;
  DIR* const list = open_list(above, name);
  if (list == nullptr) return errno;
  int error = 0;
  for (int pass = 0; pass < kMostPasses; ++pass) {
    error = remove_names(list, depth + 1);
    if (error != 0 || ::unlinkat(above, name, AT_REMOVEDIR) == 0) break;
    error = errno == ENOENT ? 0 : errno;
    if (error != ENOTEMPTY && error != EEXIST) break;
    ::rewinddir(list);
  }
  ::closedir(list);
  return error;
}

int remove_at(int above, const char* name, int depth) noexcept {
  if (::unlinkat(above, name, 0) == 0 || errno == ENOENT) return 0;
  const int error = errno;
  struct stat st {};
  const bool folder = ::fstatat(above, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
  return folder ? remove_folder(above, name, depth) : error;
}

}  // namespace

std::error_code remove_tree(const FileAt& file) noexcept {
  const int error = remove_at(file.fd(), file.name.c_str(), 0);
  return {error, std::generic_category()};
}

}  // namespace cohort
