#include "cohort/checkpoint/staging_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"

namespace cohort::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = ".tmp-";
constexpr int kMostAttempts = 10;  // losing the race against a starting Store once is rare, ten times a mistake

bool process_runs(std::int64_t pid) { return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH; }

// Keeps the lock in fd, so that no process starts to write there while it is being removed.
bool is_abandoned(const Folder& folder, const std::string& name, Fd& fd) {
  fd.reset(::openat(folder.fd(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return false;  // gone meanwhile, or no folder of ours
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  const auto parts = split(name, '-');
  try {
    return parts.size() > 2 && !process_runs(parse_int(parts[2]));
  } catch (const Failure&) {
    return false;
  }
}

std::string above_path(const std::string& path) {
  const auto folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Somebody may have removed it, and a job saves for weeks after that.
Folder folder_or_again(const std::string& path, int own) {
  if (auto folder = Folder::if_there(path, own)) return *std::move(folder);
  log_warning("{} is gone, with the checkpoints that were in it; it is made again", path);
  return make_durable_folder(path, own);
}

}  // namespace

std::string staging_path(const std::string& folder, std::int64_t step) {
  return fmt::format("{}/{}{}-{}", folder, kPrefix, step, ::getpid());
}

StagingDirectory::StagingDirectory(const std::string& path, int own)
    : above_(folder_or_again(above_path(path), own)), name_(fs::path(path).filename().string()) {
  const std::string wanted = name_;
  for (int attempt = 1; !make(); ++attempt) {  // a Store that starts now took it for abandoned, between our mkdir and our lock
    if (attempt == kMostAttempts)
      throw_failure(Kind::system, "{} was removed by another process {} times; a folder belongs to one run", path, attempt);
    name_ = fmt::format("{}-{}", wanted, attempt);
  }
}

bool StagingDirectory::make() {
  remove_tree({above_, name_});  // ours by name: left by an earlier process with our pid
  if (::mkdirat(above_.fd(), name_.c_str(), 0700) != 0) throw_system(fmt::format("mkdir {}", path()));
  try {
    folder_ = above_.inner(name_);
  } catch (const Failure&) {
    return false;
  }
  if (::flock(folder_->fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  struct stat st {};
  return ours_ = ::fstat(folder_->fd(), &st) == 0 && st.st_nlink > 0;  // 0: locked, but removed before
}

StagingDirectory::~StagingDirectory() {
  if (ours_) abandon_staging({above_, name_});
}

void abandon_staging(const FileAt& staging) noexcept {
  FileAt gone = staging;
  gone.name += "-gone";
  const bool renamed = ::renameat(staging.fd(), staging.name.c_str(), gone.fd(), gone.name.c_str()) == 0;
  remove_tree(renamed ? gone : staging);
}

void remove_stale_staging(const Folder& folder) {
  for (const std::string& name : folder.names()) {
    Fd lock;
    if (!name.starts_with(kPrefix) || !is_abandoned(folder, name, lock)) continue;
    if (const auto error = remove_tree({folder, name}))
      log_warning("{} is left from a process that died and cannot be removed: {}", folder.path_of(name), error.message());
    else
      log_info("removed {}, left by a process that died while saving", folder.path_of(name));
  }
}

Folder make_durable_folder(const std::string& path, int own) {
  if (auto folder = Folder::if_there(path, own)) return *std::move(folder);
  const Folder parent = make_durable_folder(above_path(path), std::max(0, own - 1));
  const auto name = fs::path(path).filename().string();
  if (name.empty()) return parent;  // "runs/"
  Folder made = parent.make(name, 0700);
  parent.sync();
  return made;
}

}  // namespace cohort::checkpoint
