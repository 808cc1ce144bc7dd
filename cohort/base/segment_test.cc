#include "cohort/base/segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

using testing::HasSubstr;

std::span<std::byte> all(const Segment& s) { return {s.data(), s.size()}; }

std::size_t resident_pages(const Segment& s) {
  std::vector<unsigned char> pages(round_up(s.size(), kPageBytes) / kPageBytes);
  EXPECT_EQ(mincore(s.data(), s.size(), pages.data()), 0);
  return static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; }));
}

TEST(Segment, StartsZeroedAndPageAligned) {
  const auto s = Segment::create(10'000, "test", false);
  EXPECT_EQ(s.size(), 10'000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(s.data()) % kPageBytes, 0U);
  EXPECT_TRUE(std::ranges::all_of(all(s), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Segment, TwoMappingsAreTheSameMemory) {
  const auto mine = Segment::create(1_MiB, "test", false);
  std::string why;
  const auto other = Segment::open(mine.name(), false, &why);
  ASSERT_TRUE(other) << why;
  EXPECT_NE(other->data(), mine.data());
  mine.data()[0] = std::byte{1};
  other->data()[1_MiB - 1] = std::byte{2};
  EXPECT_EQ(other->data()[0], std::byte{1});
  EXPECT_EQ(mine.data()[1_MiB - 1], std::byte{2});
}

TEST(Segment, TheOtherMappingOutlivesTheCreator) {
  auto mine = Segment::create(4096, "test", false);
  std::string why;
  const auto other = Segment::open(mine.name(), false, &why);
  ASSERT_TRUE(other) << why;
  mine.data()[7] = std::byte{42};
  mine = Segment{};
  EXPECT_FALSE(mine);
  EXPECT_EQ(other->data()[7], std::byte{42});
}

TEST(Segment, RetiredIsSeenByThePeer) {
  const auto mine = Segment::create(64, "test", false);
  const auto other = Segment::open(mine.name(), false, nullptr);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->retired().load(), 0U);
  mine.retired().store(1);
  EXPECT_EQ(other->retired().load(), 1U);
  EXPECT_EQ(other->data()[0], std::byte{0}) << "outside the usable bytes";
}

TEST(Segment, MovesItsMemory) {
  auto a = Segment::create(4096, "a", false);
  auto b = Segment::create(4096, "b", false);
  std::byte* memory = a.data();
  b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): moved-from is empty, that is the claim
  EXPECT_EQ(b.data(), memory);
  const Segment c(std::move(b));
  EXPECT_EQ(c.data(), memory);
}

TEST(Segment, NothingIsAlsoASegment) {
  const auto mine = Segment::create(0, "empty", true);
  EXPECT_TRUE(mine);
  EXPECT_TRUE(Segment::open(mine.name(), true, nullptr));
}

TEST(Segment, RefusesMemoryThatIsNotTheAnnouncedOne) {
  const auto mine = Segment::create(4096, "test", false);
  const auto twin = Segment::create(4096, "twin", false);
  const auto refused = [](SegmentName name) {
    std::string why;
    EXPECT_FALSE(Segment::open(name, false, &why));
    EXPECT_THAT(why, HasSubstr("/proc/"));
    return why;
  };
  auto name = mine.name();
  name.stamp[1] ^= 1;
  EXPECT_THAT(refused(name), HasSubstr("stamp differs"));
  name = mine.name();
  name.fd = twin.name().fd;
  EXPECT_THAT(refused(name), HasSubstr("not the announced memory"));
  name = mine.name();
  name.bytes += kPageBytes;
  EXPECT_THAT(refused(name), HasSubstr("not the announced memory"));
  const auto empty = Segment::create(0, "empty", false);
  name = empty.name();
  name.bytes = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(refused(name), HasSubstr("not the announced memory")) << "a size must not wrap around to the real one";
  name = mine.name();
  name.fd = 1'000'000;
  EXPECT_THAT(refused(name), HasSubstr("No such file"));
  name.fd = -1;
  EXPECT_THAT(refused(name), HasSubstr("No such file"));
  const Fd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  name.fd = null.get();
  EXPECT_THAT(refused(name), HasSubstr("not the announced memory"));
}

TEST(Segment, AClosedSegmentCannotBeOpened) {
  SegmentName name;
  { name = Segment::create(4096, "test", false).name(); }
  EXPECT_FALSE(Segment::open(name, false, nullptr));
}

TEST(Segment, PopulateTakesEveryPageNow) {
  const auto lazy = Segment::create(1_MiB, "lazy", false);
  EXPECT_EQ(resident_pages(lazy), 0U);
  lazy.data()[5] = std::byte{9};
  lazy.populate();
  EXPECT_EQ(resident_pages(lazy), 256U);
  EXPECT_EQ(lazy.data()[5], std::byte{9}) << "without changing them";
  EXPECT_EQ(resident_pages(Segment::create(1_MiB, "eager", true)), 256U);
}

TEST(Segment, ImpossibleSizesAreRefused) {
  for (const std::size_t bytes : {std::size_t{1} << 62, std::numeric_limits<std::size_t>::max()}) {
    const auto error = failure_of([&] { Segment::create(bytes, "huge", false); });
    EXPECT_EQ(error.kind, Kind::system);
    EXPECT_THAT(error.what, HasSubstr("'huge'"));
  }
}

TEST(SegmentProcess, AChildOpensItsParentsMemory) {
  const auto mine = Segment::create(64_KiB, "parent", false);
  mine.data()[3] = std::byte{17};
  const pid_t child = fork();
  if (child == 0) {
    munmap(mine.data() - kPageBytes, 64_KiB + kPageBytes);  // not the inherited mapping: the one it opens itself
    const auto theirs = Segment::open(mine.name(), true, nullptr);
    if (!theirs || theirs->data()[3] != std::byte{17}) _exit(1);
    theirs->data()[64_KiB - 1] = std::byte{99};
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(mine.data()[64_KiB - 1], std::byte{99});
}

}  // namespace
}  // namespace cohort
