#include "cohort/checkpoint/fence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <future>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/checkpoint/samples.h"
#include "cohort/checkpoint/store.h"

namespace {
std::atomic<int> lock_error = 0;  // what the file system answers to flock; 0: it locks
}

// This program's, in the place of the C library's.
extern "C" int flock(int fd, int how) {
  if (lock_error == 0) return static_cast<int>(::syscall(SYS_flock, fd, how));
  errno = lock_error;
  return -1;
}

namespace cohort::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;

bool passes(const std::string& folder, const Fence& mine) {
  try {
    const FenceLock lock(folder, mine);
    return true;
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::aborted);
    return false;
  }
}

TEST(Fence, KeepsOutProcessesOfAnEarlierEpochOrAnotherJob) {
  const TempDir dir;
  EXPECT_TRUE(passes(dir.path(), {"a", 1})) << "never raised";
  raise_fence(dir.path(), {"a", 3});
  EXPECT_FALSE(passes(dir.path(), {"a", 2}));
  EXPECT_TRUE(passes(dir.path(), {"a", 3}));
  EXPECT_TRUE(passes(dir.path(), {"a", 4}));
  EXPECT_FALSE(passes(dir.path(), {"b", 4}));
  EXPECT_TRUE(passes(dir.path(), {})) << "outside an elastic job there is no fence";
  raise_fence(dir.path(), {"b", 1});
  EXPECT_FALSE(passes(dir.path(), {"a", 9}));
  EXPECT_TRUE(passes(dir.path(), {"b", 1}));
}

TEST(Fence, OnAFileSystemWithoutLocksCheckpointsAreSavedAndEarlierEpochsKeptOut) {
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
    const TempDir dir;
    lock_error = error;
    raise_fence(dir.path(), {"a", 3});
    EXPECT_FALSE(passes(dir.path(), {"a", 2}));
    const SampleCheckpoint sample(1);
    Store(dir.path(), {.fence = {"a", 3}}).save(sample.manifest, sample.files);
    EXPECT_EQ(Store(dir.path()).list().size(), 1U);
    lock_error = EIO;
    EXPECT_EQ(failure_of([&] { raise_fence(dir.path(), {"a", 4}); }).kind, Kind::system);
    lock_error = 0;
  }
}

TEST(Fence, ATornFileIsNoFence) {
  const TempDir dir;
  for (const char* text : {"", "3", "3 ", "3 job", "x job\n"}) {
    std::ofstream(dir.file(".fence")) << text;
    EXPECT_TRUE(passes(dir.path(), {"a", 1})) << '"' << text << '"';
  }
}

TEST(Fence, TheFirstLineCountsWhereAPowerCutLeftTheEndOfALongerOne) {
  const TempDir dir;
  raise_fence(dir.path(), {"a-long-name", 1});
  std::fstream(dir.file(".fence")) << "3 a\n";
  EXPECT_TRUE(passes(dir.path(), {"a", 3}));
  EXPECT_FALSE(passes(dir.path(), {"a", 2}));
  raise_fence(dir.path(), {"b", 1});
  EXPECT_EQ(read_file(dir.file(".fence")), "1 b\n");
}

TEST(Fence, IsNotRaisedWhileAnotherHoldsTheLock) {
  const TempDir dir;
  auto lock = std::make_unique<FenceLock>(dir.path(), Fence{"a", 1});
  auto raised = std::async(std::launch::async, [&] { raise_fence(dir.path(), {"a", 2}); });
  EXPECT_EQ(raised.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  lock.reset();
  raised.get();
  EXPECT_FALSE(passes(dir.path(), {"a", 1}));
}

TEST(Fence, ASaveOfAnEarlierEpochLeavesNothing) {
  const TempDir dir;
  const Store old(dir.path(), {.fence = {"a", 1}}), now(dir.path(), {.fence = {"a", 2}});
  const auto save = [](const Store& store, std::int64_t step) {
    const SampleCheckpoint sample(step);
    store.save(sample.manifest, sample.files);
  };
  save(old, 10);
  raise_fence(dir.path(), {"a", 2});
  const auto error = failure_of([&] { save(old, 20); });
  EXPECT_EQ(error.kind, Kind::aborted);
  EXPECT_THAT(error.what, HasSubstr("taken for lost"));
  EXPECT_EQ(now.newest().checkpoint->manifest.step, 10);
  save(now, 11);
  EXPECT_EQ(now.list().size(), 2U);
}

TEST(Fence, FollowsNoLinkAndWaitsForNoFifo) {
  const TempDir dir, elsewhere;
  const auto fence = dir.file(".fence"), target = elsewhere.file("precious");
  const auto refused = [&](const char* what) {
    for (const auto& error : {failure_of([&] {
                                raise_fence(dir.path(), {"a", 1});
                              }),
                              failure_of([&] {
                                FenceLock(dir.path(), {"a", 1});
                              })}) {
      EXPECT_EQ(error.kind, Kind::corrupt);
      EXPECT_THAT(error.what, AllOf(HasSubstr(fence), HasSubstr(what)));
    }
    ASSERT_EQ(::unlink(fence.c_str()), 0);
  };
  write_file_atomically(target, "mine");
  ASSERT_EQ(::symlink(target.c_str(), fence.c_str()), 0);
  refused("symbolic link");
  EXPECT_EQ(read_file(target), "mine");
  ASSERT_EQ(::symlink(elsewhere.file("none").c_str(), fence.c_str()), 0);
  refused("symbolic link");
  EXPECT_FALSE(std::filesystem::exists(elsewhere.file("none")));
  ASSERT_EQ(::mkfifo(fence.c_str(), 0600), 0);
  refused("no regular file");
  raise_fence(dir.path(), {"a", 2});
  EXPECT_FALSE(passes(dir.path(), {"a", 1}));
}

}  // namespace
}  // namespace cohort::checkpoint
