// Two jobs in one folder, as processes that end, are killed, or are paused and go on later.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/checkpoint/run_lock.h"
#include "cohort/checkpoint/samples.h"
#include "cohort/checkpoint/store.h"

namespace cohort::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;
constexpr Seconds kNever{1e6};

// A child that says when it has come to a place, and waits there until it is told to go on.
class Child {
 public:
  explicit Child(const std::function<void(Child& self)>& body) {
    if (::pipe(to_.data()) != 0 || ::pipe(from_.data()) != 0) throw_system("pipe");
    pid_ = ::fork();
    if (pid_ != 0) return;
    body(*this);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  ~Child() {
    for (const int fd : {to_[0], to_[1], from_[0], from_[1]}) ::close(fd);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void reached() { move(from_[1], to_[0]); }  // of the child: says so, and waits
  void await() { EXPECT_EQ(::read(from_[0], &byte_, 1), 1); }
  void go_on() { EXPECT_EQ(::write(to_[1], "x", 1), 1); }
  void signal(int number) const { EXPECT_EQ(::kill(pid_, number), 0); }
  int status() const {
    int status = -1;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    return status;
  }
  pid_t pid() const { return pid_; }

 private:
  void move(int out, int in) {
    if (::write(out, "x", 1) != 1 || ::read(in, &byte_, 1) != 1) ::_exit(3);
  }
  std::array<int, 2> to_{}, from_{};
  pid_t pid_ = 0;
  char byte_ = 0;
};

void save(const Store& store, std::int64_t step) {
  const SampleCheckpoint sample(step);
  store.save(sample.manifest, sample.files);
}
std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const Listed& listed : Store(folder).list()) steps.push_back(listed.step);
  return steps;
}

TEST(RunLockProcess, ASecondJobIsRefusedAndToldOfTheFirst) {
  const TempDir dir;
  Child first([&](Child& self) {
    const RunLock lock(dir.path(), this_process("first"));
    self.reached();
  });
  first.await();
  const auto error = failure_of([&] { RunLock(dir.path(), this_process("second")); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, AllOf(HasSubstr(dir.path()), HasSubstr("process " + std::to_string(first.pid())), HasSubstr("job first"),
                                HasSubstr("checkpoint.takeover=true")));
  EXPECT_THAT(error.what, HasSubstr(this_process("").host));
  first.go_on();
  EXPECT_EQ(first.status(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "it was given free, and nothing else is left";
  const RunLock lock(dir.path(), this_process("second"));
}

TEST(RunLockProcess, WhatAKilledJobHeldIsTakenOver) {
  const TempDir dir;
  Child first([&](Child& self) {
    const RunLock lock(dir.path(), this_process("first"));
    self.reached();
  });
  first.await();
  first.signal(SIGKILL);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(first.pid()), &ended, WEXITED | WNOWAIT), 0);  // its parent does not look: it stays listed
  testing::internal::CaptureStderr();
  { const RunLock lock(dir.path(), this_process("second")); }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr("job first"), HasSubstr("taken over")));
  EXPECT_TRUE(WIFSIGNALED(first.status()));
}

TEST(RunLockProcess, APausedJobThatGoesOnAfterATakeoverSavesAndRemovesNothing) {
  const TempDir dir;
  const auto folder = dir.file("checkpoints");
  Child first([&](Child& self) {
    const RunLock lock(dir.path(), this_process("first"));
    const Store store(folder, {.keep = 1, .fence = {"first", 0}});
    raise_fence(folder, {"first", 0});
    save(store, 1);
    self.reached();
    const auto error = failure_of([&] { save(store, 9); });
    EXPECT_EQ(error.kind, Kind::aborted);
    EXPECT_THAT(error.what, AllOf(HasSubstr("job second has taken over"), HasSubstr("first, was taken for lost")));
  });
  first.await();
  first.signal(SIGSTOP);
  EXPECT_EQ(failure_of([&] { RunLock(dir.path(), this_process("second")); }).kind, Kind::usage) << "it is paused, and runs";
  {
    const RunLock lock(dir.path(), this_process("second"), {.takeover = true});
    const Store store(folder, {.keep = 2, .fence = {"second", 0}});
    raise_fence(folder, {"second", 0});
    for (const std::int64_t step : {2, 3}) save(store, step);
    first.signal(SIGCONT);
    first.go_on();
    EXPECT_EQ(first.status(), 0);
    EXPECT_THAT(steps_in(folder), testing::ElementsAre(3, 2)) << "the second keeps two, and what it began from counts among them";
    EXPECT_EQ(failure_of([&] { RunLock(dir.path(), this_process("third")); }).kind, Kind::usage) << "the first gave free what is not its";
  }
  EXPECT_EQ(Store(folder).newest().checkpoint->manifest.texts.at("job"), "second");
}

TEST(Store, WithAJobCountsAndRemovesNothingOfJobsThatCameLater) {
  const TempDir dir;
  save(Store(dir.path()), 1);  // of no job
  save(Store(dir.path(), {.fence = {"before", 0}}), 2);
  const Store mine(dir.path(), {.keep = 1, .fence = {"mine", 0}});
  save(Store(dir.path(), {.keep = 9, .fence = {"later", 0}}), 3);
  save(mine, 4);
  EXPECT_THAT(steps_in(dir.path()), testing::ElementsAre(4, 3)) << "1 and 2 were there when it began";
  save(mine, 5);
  EXPECT_THAT(steps_in(dir.path()), testing::ElementsAre(5, 3));
}

// --- what only the file tells

void leave_owner(const std::string& folder, const RunOwner& owner) {
  const auto text = nlohmann::json{{"job", owner.job}, {"host", owner.host}, {"boot", owner.boot},      {"pids", owner.pids},
                                   {"pid", owner.pid}, {"since", ""},        {"started", owner.started}}
                        .dump();
  std::ofstream(folder + "/.owner") << text;
}
bool is_taken(const std::string& folder, const RunLockOptions& options = {.lost = kNever}) {
  try {
    const RunLock lock(folder, this_process("mine"), options);
    return true;
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage) << failure.what();
    return false;
  }
}

TEST(RunLock, AnotherProcessWithThePidAndAHostThatWasBootedAgainHaveLeft) {
  const TempDir dir;
  RunOwner owner = this_process("before");
  leave_owner(dir.path(), owner);
  EXPECT_FALSE(is_taken(dir.path()));
  --owner.started;
  leave_owner(dir.path(), owner);
  EXPECT_TRUE(is_taken(dir.path()));
  owner = this_process("before");
  owner.boot = "another";
  leave_owner(dir.path(), owner);
  EXPECT_TRUE(is_taken(dir.path()));
  owner.boot = this_process("").boot;
  owner.job = "mine";
  leave_owner(dir.path(), owner);
  EXPECT_TRUE(is_taken(dir.path())) << "rank 0 of one job may move";
}

TEST(RunLock, TwoLaunchesOfOneNameAreTwoJobsAndOneLaunchIsOneWhereverItsRankZeroIs) {
  const TempDir dir;
  const auto first = job_of_launch("name", "1a"), second = job_of_launch("name", "2b");
  RunLock lock(dir.path(), this_process(first), {.refresh = kNever});
  EXPECT_THAT(failure_of([&] { RunLock(dir.path(), this_process(second)); }).what, HasSubstr("job " + first));
  EXPECT_TRUE(lock.holds());
  {
    RunOwner moved = this_process(first);
    moved.host = "elsewhere";
    const RunLock other(dir.path(), moved);
    EXPECT_FALSE(lock.holds());
    EXPECT_FALSE(lock.taken()) << "it is the same job";
  }
  EXPECT_TRUE(lock.holds()) << "nobody had it";
  const RunLock other(dir.path(), this_process(second), {.takeover = true});
  EXPECT_FALSE(lock.holds());
  EXPECT_TRUE(lock.taken());
  EXPECT_THAT(lock.owner(), HasSubstr("job " + second));
}

// A disk without room, for as long as it lives: no file may grow.
class NoRoom {
 public:
  NoRoom() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    set(rlimit{0, before_.rlim_max});
  }
  ~NoRoom() { set(before_); }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;

 private:
  static void set(const rlimit& limit) { EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0); }
  rlimit before_{};
};

TEST(RunLock, RankZeroThatMovesWhileTheDiskIsFullHasTheFolderAndIsWrittenDownLater) {
  const TempDir dir;
  ::signal(SIGXFSZ, SIG_IGN);
  RunOwner first = this_process("job"), second = first, third = first;
  second.since = "later", third.since = "last";
  const RunLock before(dir.path(), first, {.refresh = kNever});
  {
    std::optional<RunLock> full;
    {
      const NoRoom no_room;
      full.emplace(dir.path(), second, RunLockOptions{.refresh = kNever});
      EXPECT_TRUE(full->holds());
      EXPECT_THAT(failure_of([&] { RunLock(dir.path(), this_process("other")); }).what,
                  HasSubstr("belongs to a run that goes on: process"));
      EXPECT_EQ(failure_of([&] { RunLock(dir.path(), this_process("other"), {.takeover = true}); }).kind, Kind::system);
    }
    EXPECT_THAT(read_file(dir.file(".owner")), HasSubstr(first.since));
    EXPECT_TRUE(full->holds());
    EXPECT_THAT(read_file(dir.file(".owner")), HasSubstr("later"));
  }
  RunLock again(dir.path(), first, {.refresh = kNever});
  std::optional<RunLock> full;
  {
    const NoRoom no_room;
    full.emplace(dir.path(), second, RunLockOptions{.refresh = kNever});
  }
  const RunLock last(dir.path(), third, {.refresh = kNever});
  EXPECT_FALSE(full->holds()) << "rank 0 has moved on";
  EXPECT_FALSE(full->taken());
  EXPECT_THAT(read_file(dir.file(".owner")), HasSubstr("last"));
}

TEST(RunLock, AnOwnerOnAnotherHostRunsWhenItTouchesTheFileAndHasLeftWhenItDoesNot) {
  const TempDir dir;
  const auto path = dir.file(".owner");
  RunOwner owner = this_process("before");
  owner.host = "elsewhere";
  leave_owner(dir.path(), owner);
  std::atomic<bool> decided = false;
  std::thread touches([&] {
    while (!decided) ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0), std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  EXPECT_FALSE(is_taken(dir.path()));
  decided = true;
  touches.join();
  const std::array<timespec, 2> long_ago{{{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), long_ago.data(), 0), 0);
  EXPECT_TRUE(is_taken(dir.path(), {.refresh = Seconds{0.01}}));
  leave_owner(dir.path(), owner);
  EXPECT_TRUE(is_taken(dir.path(), {.takeover = true, .lost = kNever}));
}

// The clock of the file system is set between two touches of an owner that runs.
TEST(RunLock, AnOwnerOnAnotherHostIsJudgedByOurClockAndNotByTheFileSystems) {
  const TempDir dir;
  const auto path = dir.file(".owner");
  RunOwner elsewhere = this_process("before");
  elsewhere.host = "elsewhere";
  const auto set_touched = [&](std::int64_t seconds) {
    const timespec when{.tv_sec = ::time(nullptr) + seconds, .tv_nsec = 0};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), std::array<timespec, 2>{when, when}.data(), 0), 0);
  };
  {
    const RunLock owner(dir.path(), elsewhere, {.refresh = Seconds{0.2}});
    set_touched(-3600);  // the clock was set ahead by an hour
    EXPECT_FALSE(is_taken(dir.path(), {.refresh = Seconds{10}})) << "it runs, and touches the file";
  }
  leave_owner(dir.path(), elsewhere);
  set_touched(3600);  // .. or back; and the owner has left
  EXPECT_TRUE(is_taken(dir.path(), {.refresh = Seconds{0.01}, .lost = Seconds{0.3}})) << "it would wait for an hour";
}

TEST(RunLock, TouchesItsFileAndMakesItAgainWhereItWasRemoved) {
  const TempDir dir;
  const auto path = dir.file(".owner");
  const RunLock lock(dir.path(), this_process("mine"), {.refresh = Seconds{0.01}});
  const auto text = read_file(path);
  struct stat st {};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), std::array<timespec, 2>{}.data(), 0), 0);
  do ASSERT_EQ(::stat(path.c_str(), &st), 0);
  while (st.st_mtim.tv_sec == 0);
  ASSERT_EQ(::unlink(path.c_str()), 0);
  while (!std::filesystem::exists(path)) std::this_thread::yield();
  EXPECT_EQ(read_file(path), text);
}

TEST(RunLock, FollowsNoLinkAndWaitsForNoFifo) {
  const TempDir dir, elsewhere;
  const auto path = dir.file(".owner"), target = elsewhere.file("precious");
  const auto refused = [&](const char* what) {
    const auto error = failure_of([&] { RunLock(dir.path(), this_process("mine")); });
    EXPECT_EQ(error.kind, Kind::corrupt);
    EXPECT_THAT(error.what, AllOf(HasSubstr(path), HasSubstr(what)));
    ASSERT_EQ(::unlink(path.c_str()), 0);
  };
  write_file_atomically(target, "mine");
  ASSERT_EQ(::symlink(target.c_str(), path.c_str()), 0);
  refused("symbolic link");
  EXPECT_EQ(read_file(target), "mine");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  refused("no regular file");
}

}  // namespace
}  // namespace cohort::checkpoint
