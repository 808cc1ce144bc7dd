// Checkpoints of processes that die, and on disks that are full.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>

#include "cohort/base/deadline.h"
#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/checkpoint/samples.h"

namespace cohort::checkpoint {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// Runs body in a child; its expectations count there, the exit status tells.
template <class Body>
pid_t in_child(Body body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  body();
  ::_exit(testing::Test::HasFailure() ? 1 : 0);
}
int status_of(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

bool any_temporary(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(".tmp-")) return true;
  return false;
}

// A run that starts again in this folder: the newest holds, is no older than what was promised, and nothing half done is left.
std::int64_t newest_after_restart(const std::string& folder, std::int64_t promised) {
  const Store store(folder, {.keep = 2});
  EXPECT_FALSE(any_temporary(folder));
  const auto newest = store.newest();
  EXPECT_TRUE(newest.refused.empty());
  const auto step = newest.checkpoint ? newest.checkpoint->manifest.step : 0;
  EXPECT_GE(step, promised);
  return step;
}

// Saves steps one after the other and tells each over the pipe once it is safe.
void save_for_ever(const std::string& folder, std::int64_t step, int to) {
  const Store store(folder, {.keep = 2});
  for (;; ++step) {
    const SampleCheckpoint sample(step, 1 << (10 + step % 8));
    store.save(sample.manifest, sample.files);
    if (::write(to, &step, sizeof step) != sizeof step) ::_exit(1);
  }
}

TEST(StoreProcess, KilledAtAnyMomentTheNewestStillHolds) {
  set_log_level(Level::warning);
  const TempDir folder;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  std::int64_t step = 0;
  int kills = 0;
  const auto patience = Deadline::in(60s);  // a slow machine is given more time until it has saved something
  for (const auto end = Deadline::in(1.5s); !end.passed() || (step == 0 && !patience.passed()); ++kills) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    Fd from{ends[0]}, to{ends[1]};
    const pid_t child = in_child([&] { save_for_ever(folder.path(), step + 1, to.get()); });
    to.reset();
    const auto moment = Deadline::in(std::chrono::microseconds(random() % 40'000 * (step > 0 ? 1 : 1 + static_cast<unsigned>(kills) / 8)));
    for (std::int64_t reported = 0; !moment.passed();) {
      pollfd ready{from.get(), POLLIN, 0};
      const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(moment.left());
      const timespec until{0, static_cast<long>(left.count())};
      if (::ppoll(&ready, 1, &until, nullptr) == 1 && ::read(from.get(), &reported, sizeof reported) == sizeof reported) step = reported;
    }
    ::kill(child, SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(status_of(child)));
    for (std::int64_t reported = 0; ::read(from.get(), &reported, sizeof reported) == sizeof reported;) step = reported;
    step = newest_after_restart(folder.path(), step);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(step, 0);
  RecordProperty("kills", kills);
}

// Saves `step` over checkpoints 1 and 2, in a child that is killed after this many stops (each system call has two: before and after).
// True when it finished before that.
bool save_until_stop(const Store& store, std::int64_t step, int stops) {
  for (const std::int64_t old : {1, 2}) {
    const SampleCheckpoint sample(old);
    store.save(sample.manifest, sample.files);
  }
  const pid_t child = in_child([&] {
    const SampleCheckpoint sample(step);
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    store.save(sample.manifest, sample.files);
  });
  int status = status_of(child);
  while (WIFSTOPPED(status) && stops-- > 0) {
    EXPECT_EQ(::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr), 0);
    status = status_of(child);
  }
  if (WIFEXITED(status)) return true;
  ::kill(child, SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(status_of(child)));
  return false;
}

// The same without chance: a save dies after each of its system calls in turn.
void kill_at_every_system_call(std::int64_t step) {
  set_log_level(Level::warning);
  const MemoryDir folder;
  bool finished = false;
  int stops = 0;
  for (; !finished; stops += 2) {
    const auto run = folder.file(std::to_string(stops));
    finished = save_until_stop(Store(run, {.keep = 2}), step, stops);
    const auto newest = newest_after_restart(run, 2);
    ASSERT_FALSE(testing::Test::HasFailure()) << "killed at stop " << stops;
    EXPECT_TRUE(!finished || newest == step);
    fs::remove_all(run);
  }
  EXPECT_GT(stops, 100);
}
TEST(StoreProcess, KilledAtEverySystemCallOfASaveThatPrunesTheNewestHolds) { kill_at_every_system_call(3); }
TEST(StoreProcess, KilledAtEverySystemCallOfASaveThatReplacesTheNewestHolds) { kill_at_every_system_call(2); }

// A disk of 1 MiB that this process alone sees: as `unshare -rm` has it, which tools/test_needs.py probes.
void mount_small_disk(const std::string& folder) {
  const std::string own_user = fmt::format("0 {} 1", ::getuid()), own_group = fmt::format("0 {} 1", ::getgid());
  ASSERT_EQ(::unshare(CLONE_NEWUSER | CLONE_NEWNS), 0) << std::strerror(errno);
  spill("/proc/self/setgroups", "deny");
  spill("/proc/self/uid_map", own_user);
  spill("/proc/self/gid_map", own_group);
  ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0) << std::strerror(errno);
  ASSERT_EQ(::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m"), 0) << std::strerror(errno);
}

void limit_files(const std::string&) {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{1_MiB, 1_MiB};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
}

void save_where_room_is(void (*made_scarce)(const std::string& folder), const char* reason) {
  const TempDir folder;
  const pid_t child = in_child([&] {
    made_scarce(folder.path());
    if (testing::Test::HasFailure()) return;
    const Store store(folder.path());
    const SampleCheckpoint first(1, 10'000), huge(2, 1'000'000), third(3, 10'000);
    store.save(first.manifest, first.files);
    const auto error = failure_of([&] { store.save(huge.manifest, huge.files); });
    EXPECT_EQ(error.kind, Kind::system);
    EXPECT_THAT(error.what, HasSubstr("checkpoint of step 2"));
    EXPECT_THAT(error.what, HasSubstr("model.safetensors at offset"));
    EXPECT_THAT(error.what, HasSubstr(reason));
    EXPECT_THAT(error.what, HasSubstr("the newest there is step 1"));
    EXPECT_FALSE(any_temporary(folder.path()));
    EXPECT_EQ(store.newest().checkpoint->manifest.step, 1);
    store.save(third.manifest, third.files);
    EXPECT_EQ(store.newest().checkpoint->manifest.step, 3);
  });
  const int status = status_of(child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}
TEST(StoreProcess, OnAFullDiskTheOldCheckpointStaysAndTheNextMaySucceed) {
  save_where_room_is(mount_small_disk, "No space left on device");
}
TEST(StoreProcess, WhereFilesMayNotGrowTheOldCheckpointStaysAndTheNextMaySucceed) { save_where_room_is(limit_files, "File too large"); }

}  // namespace
}  // namespace cohort::checkpoint
