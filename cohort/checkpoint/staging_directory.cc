#include "cohort/checkpoint/staging_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/output.h"

namespace cohort::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = ".tmp-";
constexpr int kMostAttempts = 10;  // losing the race against a starting Store once is rare, ten times a mistake

bool process_runs(std::int64_t pid) { return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH; }

// Keeps the lock in fd, so that no process starts to write there while it is being removed.
bool is_abandoned(const fs::path& path, Fd& fd) {
  fd.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return false;  // gone meanwhile, or no folder of ours
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  const auto name = path.filename().string();
  const auto parts = split(name, '-');
  try {
    return parts.size() > 2 && !process_runs(parse_int(parts[2]));
  } catch (const Failure&) {
    return false;
  }
}

}  // namespace

std::string staging_path(const std::string& folder, std::int64_t step) {
  return fmt::format("{}/{}{}-{}", folder, kPrefix, step, ::getpid());
}

StagingDirectory::StagingDirectory(const std::string& path) : path_(path) {
  for (int attempt = 1; !make(); ++attempt) {  // a Store that starts now took it for abandoned, between our mkdir and our lock
    if (attempt == kMostAttempts)
      throw_failure(Kind::system, "{} was removed by another process {} times; a folder belongs to one run", path, attempt);
    path_ = fmt::format("{}-{}", path, attempt);
  }
}

bool StagingDirectory::make() {
  remove_tree(path_);  // ours by name: left by an earlier process with our pid
  make_folder();
  lock_.reset(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!lock_) return false;
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  struct stat st {};
  return ours_ = ::fstat(lock_.get(), &st) == 0 && st.st_nlink > 0;  // 0: locked, but removed before
}

// Somebody may have removed the folder above, and a job saves for weeks after that.
void StagingDirectory::make_folder() {
  if (::mkdir(path_.c_str(), 0700) == 0) return;
  if (errno != ENOENT) throw_system(fmt::format("mkdir {}", path_));
  const auto folder = fs::path(path_).parent_path().string();
  log_warning("{} is gone, with the checkpoints that were in it; it is made again", folder);
  make_durable_folder(folder);
  if (::mkdir(path_.c_str(), 0700) != 0) throw_system(fmt::format("mkdir {}", path_));
}

StagingDirectory::~StagingDirectory() {
  if (ours_) abandon_staging(path_);
}

void abandon_staging(const std::string& path) noexcept {
  const std::string gone = path + "-gone";
  remove_tree(::rename(path.c_str(), gone.c_str()) == 0 ? gone : path);
}

void remove_stale_staging(const std::string& folder) {
  std::vector<fs::path> leftovers;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().starts_with(kPrefix)) leftovers.push_back(entry->path());
  if (error) throw_system(fmt::format("list {}", folder), error.value());
  for (const auto& path : leftovers) {
    Fd lock;
    if (!is_abandoned(path, lock)) continue;
    error = remove_tree(path);
    if (error)
      log_warning("{} is left from a process that died and cannot be removed: {}", path.string(), error.message());
    else
      log_info("removed {}, left by a process that died while saving", path.string());
  }
}

void make_durable_folder(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return;
  const auto above = fs::path(path).parent_path();
  const std::string parent = above.empty() ? std::string(1, '.') : above.string();
  make_durable_folder(parent);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) throw_system(fmt::format("mkdir {}", path));
  sync_folder(parent);
}

}  // namespace cohort::checkpoint
