#include "cohort/checkpoint/run_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <optional>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"
#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/regular_file.h"
#include "cohort/checkpoint/strict_json.h"

namespace cohort::checkpoint {
namespace {

constexpr std::size_t kMostBytes = 4096;
constexpr int kMostAttempts = 100;  // others that take the same stale lock at the same time
constexpr Seconds kLook{0.1};       // at the owner's file, while it may be touched

std::string path_in(const std::string& folder) { return folder + "/.owner"; }

std::string first_line_of(const char* path) { return std::string(trim(read_file(path, 256))); }

// Field 22 of /proc/<pid>/stat; the name before it may hold blanks and brackets. -1: there is no such process, or it has ended and its
// parent did not look yet (in a container whose first process never does).
std::int64_t start_of(std::int64_t pid) {
  try {
    const std::string stat = read_file(fmt::format("/proc/{}/stat", pid), kMostBytes);
    const auto fields = split(std::string_view(stat).substr(stat.rfind(')') + 2), ' ');
    return fields.size() > 19 && fields[0] != "Z" && fields[0] != "X" ? parse_int(fields[19]) : -1;
  } catch (const Failure&) {
    return -1;
  }
}

struct Held {
  std::string text;
  std::optional<RunOwner> owner;  // empty: not readable
  struct stat status {};
};

std::optional<RunOwner> parse(const std::string& text, const std::string& where) {
  try {
    const auto j = parse_strict_json(text, where);
    return RunOwner{j.at("job"), j.at("host"), j.at("boot"), j.at("pids"), j.at("pid"), j.at("started"), j.at("since")};
  } catch (const Failure&) {
    return std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string read_all(const Fd& file, const std::string& path) {
  std::string text(kMostBytes, '\0');
  const auto size = ::pread(file.get(), text.data(), text.size(), 0);
  if (size < 0) throw_system(fmt::format("read {}", path));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::optional<Fd> open_owner(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0 && errno == ENOENT) return std::nullopt;
  try {
    return open_regular(path, O_RDWR);
  } catch (const Failure& failure) {
    if (::lstat(path.c_str(), &st) != 0 && errno == ENOENT) return std::nullopt;  // it went meanwhile
    throw;
  }
}

std::optional<Held> read_owner(const std::string& path) {
  const auto file = open_owner(path);
  if (!file) return std::nullopt;
  Held held{read_all(*file, path), std::nullopt, {}};
  held.owner = parse(held.text, path);
  if (::fstat(file->get(), &held.status) != 0) throw_system(fmt::format("stat {}", path));
  return held;
}

// Our own record beside the lock, to be linked to its name; touched, it tells the time of the file system.
class Record {
 public:
  Record(const std::string& folder, const std::string& text) : path_(fmt::format("{}/{}", folder, unique_name(".owner"))) {
    file_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file_) throw_system(fmt::format("create {}", path_));
    if (::write(file_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) || ::fsync(file_.get()) != 0) {
      const int error = errno;
      ::unlink(path_.c_str());
      throw_system(fmt::format("write {}", path_), error);
    }
  }
  ~Record() { ::unlink(path_.c_str()); }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  const std::string& path() const { return path_; }
  Seconds age_of(const struct stat& other) const {
    struct stat now {};
    if (::futimens(file_.get(), nullptr) != 0 || ::fstat(file_.get(), &now) != 0) throw_system(fmt::format("touch {}", path_));
    return Seconds(static_cast<double>(now.st_mtim.tv_sec - other.st_mtim.tv_sec) +
                   static_cast<double>(now.st_mtim.tv_nsec - other.st_mtim.tv_nsec) * 1e-9);
  }

 private:
  std::string path_;
  Fd file_;
};

// False: the name is taken.
bool take_free(const std::string& path, const Record& record, const std::string& text) {
  if (::link(record.path().c_str(), path.c_str()) == 0) return true;
  if (errno == EEXIST) return false;
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK)
    throw_system(fmt::format("link {} to {}", record.path(), path));
  const Fd file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};  // a file system without links
  if (!file && errno == EEXIST) return false;
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw_system(fmt::format("create {}", path));
  return true;
}

// The lock that was looked at, and no other: of several that take the same one over each might remove the next owner's.
void remove_held(const std::string& path, const Held& held) {
  const auto aside = path + unique_name("-old");
  if (::rename(path.c_str(), aside.c_str()) != 0) {
    if (errno == ENOENT) return;
    throw_system(fmt::format("rename {}", path));
  }
  if (const auto moved = read_owner(aside); moved && moved->text != held.text) [[maybe_unused]]
    const int back = ::link(aside.c_str(), path.c_str());
  ::unlink(aside.c_str());
}

// Where the disk has no room for another file: what is there has room for as much again.
bool overwrite(const std::string& path, const Held& held, const std::string& text) {
  const auto file = open_owner(path);
  if (!file || read_all(*file, path) != held.text) return false;
  const auto put = [&](const std::string& record) {
    return ::pwrite(file->get(), record.data(), record.size(), 0) == static_cast<ssize_t>(record.size()) &&
           ::ftruncate(file->get(), static_cast<off_t>(record.size())) == 0;
  };
  if (put(text) && ::fsync(file->get()) == 0) return true;
  put(held.text);  // half of a record names nobody, and would pass for another job's
  return false;
}

std::string name_of(const Held& held) {
  return held.owner ? to_text(*held.owner) : fmt::format("\"{}\"", printable(std::string_view(held.text).substr(0, 80)));
}

enum class State { gone, runs, unknown };
State state_of(const Held& held, const RunOwner& mine) {
  if (!held.owner) return State::unknown;
  const RunOwner& o = *held.owner;
  if (o.host != mine.host) return State::unknown;
  if (o.boot != mine.boot) return State::gone;
  if (o.pids != mine.pids) return State::unknown;
  return start_of(o.pid) == o.started ? State::runs : State::gone;
}

// Of an owner that only its file can tell of: until it is touched, or has not been for too long.
State watch(const std::string& path, const Held& held, const Record& record, const RunLockOptions& options) {
  bool told = false;
  // By our own clock: the file system's may have been set since the owner touched its file, ahead, which makes it look old, or back, which
  // makes it look new for hours.
  const Deadline two_touches = Deadline::in(2 * options.refresh), silent = Deadline::in(options.lost);
  while (!silent.passed() && !(two_touches.passed() && record.age_of(held.status) > options.lost)) {
    const auto now = read_owner(path);
    if (!now || now->text != held.text) return State::unknown;  // another: look again
    if (now->status.st_mtim.tv_sec != held.status.st_mtim.tv_sec || now->status.st_mtim.tv_nsec != held.status.st_mtim.tv_nsec)
      return State::runs;
    if (options.looked) options.looked();
    if (!std::exchange(told, true))
      log_info("{} belongs to {}; waiting at most {} to see whether it still runs", path, name_of(held), format_seconds(options.lost));
    std::this_thread::sleep_for(kLook);
  }
  return State::gone;
}

[[noreturn]] void refuse(const std::string& folder, const Held& held, bool had) {
  if (had)
    throw_failure(
        Kind::usage,
        "{} was taken over by {}: this run can save nothing there any more, so it ends. Start it again with another `out` to have "
        "both runs",
        folder, name_of(held));
  throw_failure(
      Kind::usage,
      "{} belongs to a run that goes on: {}. Let it end, say another `out`, or take the folder over with checkpoint.takeover=true, "
      "after which that run saves nothing more",
      folder, name_of(held));
}

// False: somebody else was quicker, or it has changed: look again.
bool take_held(const std::string& folder, const Held& held, const RunOwner& mine, const Record& record, const RunLockOptions& options) {
  const std::string path = path_in(folder);
  if (held.owner && held.owner->job == mine.job) {
    if (::rename(record.path().c_str(), path.c_str()) != 0) throw_system(fmt::format("rename to {}", path));
    return true;
  }
  State state = options.takeover ? State::gone : state_of(held, mine);
  if (state == State::unknown) state = watch(path, held, record, options);
  if (state == State::runs) refuse(folder, held, options.had);
  if (state == State::unknown) return false;
  log_warning("{} belonged to {}{}; it is taken over", folder, name_of(held),
              options.takeover ? "" : ", which ended without giving it free");
  remove_held(path, held);
  return false;
}

}  // namespace

RunOwner this_process(std::string job) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::error_code error;
  return {std::move(job),
          host,
          first_line_of("/proc/sys/kernel/random/boot_id"),
          std::filesystem::read_symlink("/proc/self/ns/pid", error).string(),
          ::getpid(),
          start_of(::getpid()),
          fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)))};
}

std::string job_of_launch(const std::string& job, const std::string& launch) { return launch.empty() ? job : job + "." + launch; }

std::string to_text(const RunOwner& owner) {
  return fmt::format("process {} on {} since {} (job {})", owner.pid, printable(owner.host), printable(owner.since), printable(owner.job));
}

RunLock::RunLock(std::string folder, const RunOwner& mine, RunLockOptions options)
    : folder_(std::move(folder)),
      text_(nlohmann::json{{"job", mine.job},
                           {"host", mine.host},
                           {"boot", mine.boot},
                           {"pids", mine.pids},
                           {"pid", mine.pid},
                           {"started", mine.started},
                           {"since", mine.since}}
                .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
            "\n"),
      job_(mine.job),
      options_(options) {
  try {
    take(mine);
  } catch (const Failure& failure) {
    const auto held = failure.error().kind == Kind::system ? read_owner(path_in(folder_)) : std::nullopt;
    if (held && held->owner && held->owner->job != mine.job && !options_.takeover && state_of(*held, mine) == State::runs)
      refuse(folder_, *held, options_.had);  // which says more than that the disk has no room
    if (!held || !held->owner || held->owner->job != mine.job) throw;
    if (!overwrite(path_in(folder_), *held, text_)) {
      moved_from_ = held->text;
      log_warning("{}; {} is this job's, and the process that writes there is written down as soon as that is possible", failure.what(),
                  folder_);
    }
  }
  thread_ = std::thread([this] { touch_until_stopped(); });
}

void RunLock::take(const RunOwner& mine) const {
  for (int attempt = 1;; ++attempt) {
    const Record record(folder_, text_);
    if (take_free(path_in(folder_), record, text_)) return;
    const auto held = read_owner(path_in(folder_));
    if (held && take_held(folder_, *held, mine, record, options_)) return;
    if (attempt == kMostAttempts) throw_failure(Kind::system, "{} changed its owner {} times while it was taken", folder_, attempt);
  }
}

RunLock::~RunLock() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (leaves_) return;
  try {
    if (const auto held = read_owner(path_in(folder_)); held && (held->text == text_ || held->text == moved_from_))
      ::unlink(path_in(folder_).c_str());
  } catch (const std::exception& error) {
    log_warning("{} was not given free: {}", folder_, error.what());
  }
}

// Only in place of the process before: a later rank 0 may be another one by now.
bool RunLock::write_moved() {
  const auto held = read_owner(path_in(folder_));
  if (!held || held->text != moved_from_) {
    moved_from_.clear();
    return touch();
  }
  const Record record(folder_, text_);
  if (::rename(record.path().c_str(), path_in(folder_).c_str()) != 0) throw_system(fmt::format("rename to {}", path_in(folder_)));
  moved_from_.clear();
  return true;
}

bool RunLock::touch() {
  if (!moved_from_.empty()) return write_moved();
  const auto file = open_owner(path_in(folder_));
  if (!file) {  // for an instant, while another looked whom it took it from; or somebody removed it
    if (!std::filesystem::is_directory(folder_)) return true;
    const Record record(folder_, text_);
    return take_free(path_in(folder_), record, text_);
  }
  if (read_all(*file, path_in(folder_)) != text_) return false;
  ::futimens(file->get(), nullptr);
  return true;
}

void RunLock::touch_until_stopped() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, options_.refresh, [&] { return stops_; }))
    if (!holds()) return;
}

bool RunLock::holds() {
  const std::lock_guard lock(look_);
  if (taken_) return false;
  try {
    if (touch()) return true;
    const auto held = read_owner(path_in(folder_));
    if (held && held->owner && held->owner->job == job_) return false;  // rank 0 moved
    owner_ = held ? name_of(*held) : "another run";
    taken_ = true;
    return false;
  } catch (const std::exception& error) {
    log_debug("{}: {}", path_in(folder_), error.what());
    return true;
  }
}

}  // namespace cohort::checkpoint
