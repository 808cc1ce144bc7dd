#include "cohort/checkpoint/fence.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstring>
#include <optional>
#include <thread>

#include "cohort/base/deadline.h"
#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/regular_file.h"

namespace cohort::checkpoint {
namespace {

constexpr Seconds kPatience{10};  // a lock is held for as long as a rename takes

std::string path_in(const std::string& folder) { return folder + "/.fence"; }

// NFS mounted with `nolock`, Lustre without `flock`: the record is compared all the same, only not in one step with the rename.
void warn_without_locks(const std::string& path, int error) {
  static std::atomic<bool> told = false;
  if (told.exchange(true)) return;
  log_warning("lock {}: {}; this file system has no locks, and a run that was taken for lost could still complete a save that it has begun",
              path, std::strerror(error));
}

Fd locked(const std::string& path, int how) {
  Fd file = open_regular(path, O_RDWR | O_CREAT, 0600);
  const Deadline limit = Deadline::in(kPatience);
  while (::flock(file.get(), how | LOCK_NB) != 0) {
    if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) {
      warn_without_locks(path, errno);
      break;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) throw_system(fmt::format("lock {}", path));
    if (limit.passed())
      throw_failure(Kind::timeout, "{} has been locked for {:g} s: a process that saves there hangs", path, kPatience.count());
    std::this_thread::sleep_for(1ms);
  }
  return file;
}

// "<epoch> <job>"; none: never raised, or torn by a power cut while it was.
std::optional<Fence> read(const Fd& file, const std::string& path) {
  std::array<char, 512> bytes{};
  const auto size = ::pread(file.get(), bytes.data(), bytes.size(), 0);
  if (size < 0) throw_system(fmt::format("read {}", path));
  const std::string_view text(bytes.data(), static_cast<std::size_t>(size));
  Fence fence;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fence.epoch);
  if (error != std::errc{} || end == text.data() + text.size() || *end != ' ' || !text.ends_with('\n')) return std::nullopt;
  fence.job = text.substr(static_cast<std::size_t>(end - text.data()) + 1, text.size());
  fence.job.pop_back();
  return fence;
}

}  // namespace

void check_fence(const std::string& folder, const Fence& mine) {
  struct stat st {};
  if (mine.job.empty() || ::stat(folder.c_str(), &st) != 0) return;  // a folder that is gone: the next save makes it again
  FenceLock(folder, mine);
}

void raise_fence(const std::string& folder, const Fence& to) {
  const std::string path = path_in(folder), text = fmt::format("{} {}\n", to.epoch, to.job);
  const Fd file = locked(path, LOCK_EX);
  if (::ftruncate(file.get(), 0) != 0 || ::pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::fsync(file.get()) != 0)
    throw_system(fmt::format("write {}", path));
}

std::optional<Fence> raised_fence(const std::string& folder) {
  const std::string path = path_in(folder);
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return std::nullopt;
  return read(open_regular(path, O_RDONLY), path);
}

FenceLock::FenceLock(const std::string& folder, const Fence& mine) {
  if (mine.job.empty()) return;
  lock_ = locked(path_in(folder), LOCK_SH);
  const auto fence = read(lock_, path_in(folder));
  if (!fence || (fence->job == mine.job && fence->epoch <= mine.epoch)) return;
  if (fence->job != mine.job)
    throw_failure(Kind::aborted, "job {} has taken over {}: this job, {}, was taken for lost and saves there no more",
                  printable(fence->job), folder, mine.job);
  throw_failure(Kind::aborted,
                "epoch {} of job {} has begun from what lies in {}, and this is of epoch {} of job {}: it was taken for lost, and what it "
                "has no longer counts",
                fence->epoch, fence->job, folder, mine.epoch, mine.job);
}

}  // namespace cohort::checkpoint
