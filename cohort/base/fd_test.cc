#include "cohort/base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace cohort {
namespace {

bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }
Fd open_null() { return Fd{open("/dev/null", O_RDONLY | O_CLOEXEC)}; }

TEST(Fd, ClosesItself) {
  int raw = -1;
  {
    const Fd fd = open_null();
    ASSERT_TRUE(fd);
    raw = fd.get();
    EXPECT_TRUE(is_open(raw));
  }
  EXPECT_FALSE(is_open(raw));
  EXPECT_FALSE(Fd{});
}

TEST(Fd, MovingHandsItOver) {
  Fd a = open_null();
  const int raw = a.get();
  Fd b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): moved-from is empty, that is the claim
  EXPECT_EQ(b.get(), raw);
  Fd c = open_null();
  const int replaced = c.get();
  c = std::move(b);
  EXPECT_FALSE(is_open(replaced));
  EXPECT_EQ(c.get(), raw);
  Fd& self = c;
  c = std::move(self);
  EXPECT_TRUE(is_open(raw)) << "moving onto itself changes nothing";
}

TEST(Fd, ReleaseGivesItAwayAndResetReplacesIt) {
  Fd fd = open_null();
  const int raw = fd.release();
  EXPECT_FALSE(fd);
  EXPECT_TRUE(is_open(raw));
  fd.reset(raw);
  fd.reset();
  EXPECT_FALSE(is_open(raw));
}

}  // namespace
}  // namespace cohort
