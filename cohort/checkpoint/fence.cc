#include "cohort/checkpoint/fence.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
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

constexpr const char* kName = ".fence";

// NFS mounted with `nolock`, Lustre without `flock`: the record is compared all the same, only not in one step with the rename.
void warn_without_locks(const std::string& path, int error) {
  static std::atomic<bool> told = false;
  if (told.exchange(true)) return;
  log_warning("lock {}: {}; this file system has no locks, and a run that was taken for lost could still complete a save that it has begun",
              path, std::strerror(error));
}

Fd locked(const Folder& folder, int how) {
  const std::string path = folder.path_of(kName);
  Fd file = open_regular({folder, kName}, O_RDWR | O_CREAT, 0600);
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

// "<membership epoch> <job>"; none: never raised, or torn by a power cut while it was.
std::optional<Fence> read(const Fd& file, const std::string& path) {
  std::array<char, 512> bytes{};
  const auto size = ::pread(file.get(), bytes.data(), bytes.size(), 0);
  if (size < 0) throw_system(fmt::format("read {}", path));
  std::string_view text(bytes.data(), static_cast<std::size_t>(size));
  const auto end_of_line = text.find('\n');
  if (end_of_line == text.npos) return std::nullopt;
  text = text.substr(0, end_of_line);
  Fence fence;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fence.epoch);
  if (error != std::errc{} || end == text.data() + text.size() || *end != ' ') return std::nullopt;
  fence.job = text.substr(static_cast<std::size_t>(end - text.data()) + 1);
  return fence;
}

}  // namespace

void check_fence(const Folder& folder, const Fence& mine) { FenceLock(folder, mine); }

void raise_fence(const Folder& folder, const Fence& to) {
  const std::string path = folder.path_of(kName), text = fmt::format("{} {}\n", to.epoch, to.job);
  const Fd file = locked(folder, LOCK_EX);
  // Over the old text first: a full disk has room for that. The first line counts.
  if (::pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::ftruncate(file.get(), static_cast<off_t>(text.size())) != 0 || ::fsync(file.get()) != 0)
    throw_system(fmt::format("write {}", path));
}

std::optional<Fence> raised_fence(const Folder& folder) {
  if (!folder.has(kName)) return std::nullopt;
  return read(open_regular({folder, kName}, O_RDONLY), folder.path_of(kName));
}

FenceLock::FenceLock(const Folder& folder, const Fence& mine) {
  if (mine.job.empty()) return;
  lock_ = locked(folder, LOCK_SH);
  const auto fence = read(lock_, folder.path_of(kName));
  if (!fence || (fence->job == mine.job && fence->epoch <= mine.epoch)) return;
  if (fence->job != mine.job)
    throw_failure(Kind::aborted, "job {} has taken over {}: this job, {}, was taken for lost and saves there no more",
                  printable(fence->job), folder.path(), mine.job);
  throw_failure(Kind::aborted,
                "membership epoch {} of job {} has begun from what lies in {}, and this is of membership epoch {} of job {}: it was taken "
                "for lost, and what it has no longer counts",
                fence->epoch, fence->job, folder.path(), mine.epoch, mine.job);
}

}  // namespace cohort::checkpoint
