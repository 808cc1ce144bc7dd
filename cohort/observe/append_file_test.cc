#include "cohort/observe/append_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"

namespace cohort::observe {
namespace {

using testing::HasSubstr;

// While it lives no file of this process grows beyond `bytes`: a disk that is full in the middle of a record.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(AppendFile, FreshRefusesAFileThatIsThere) {
  const TempDir dir;
  auto file = AppendFile::fresh(dir.file("a"));
  EXPECT_TRUE(file.append("one"));
  const auto error = failure_of([&] { AppendFile::fresh(dir.file("a")); });
  EXPECT_EQ(error.kind, Kind::system);
  EXPECT_THAT(error.what, HasSubstr(dir.file("a")));
  EXPECT_EQ(read_file(dir.file("a")), "one");
}

TEST(AppendFile, FollowsNoLinkAndWaitsForNoFifo) {
  const TempDir dir;
  write_file_atomically(dir.file("precious"), "mine");
  ASSERT_EQ(::symlink(dir.file("precious").c_str(), dir.file("link").c_str()), 0);
  ASSERT_EQ(::symlink(dir.file("none").c_str(), dir.file("dangling").c_str()), 0);
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  for (const char* name : {"link", "dangling", "fifo"}) {
    const auto error = failure_of([&] { AppendFile::resume(dir.file(name), '\n'); });
    EXPECT_EQ(error.kind, Kind::corrupt);
    EXPECT_THAT(error.what, HasSubstr(dir.file(name)));
  }
  EXPECT_EQ(read_file(dir.file("precious")), "mine");
  EXPECT_NE(::access(dir.file("none").c_str(), F_OK), 0);
}

TEST(AppendFile, ResumeCutsWhatAKilledWriterLeftBehind) {
  const TempDir dir;
  const std::string longer(10'000, 'x');
  for (const auto& [before, kept] : std::vector<std::pair<std::string, std::string>>{
           {"", ""}, {"a\nb\n", "a\nb\n"}, {"a\nb\nha", "a\nb\n"}, {"half", ""}, {"a\n" + longer, "a\n"}}) {
    write_file_atomically(dir.file("m"), before);
    EXPECT_TRUE(AppendFile::resume(dir.file("m"), '\n').append("next\n"));
    EXPECT_EQ(read_file(dir.file("m")), kept + "next\n");
  }
}

TEST(AppendFile, AFullDiskLosesWholeRecordsAndThenGoesOn) {
  const TempDir dir;
  auto file = AppendFile::fresh(dir.file("a"));
  {
    const FullDisk full{10};
    EXPECT_TRUE(file.append("12345678\n"));
    EXPECT_FALSE(file.append("abcdefgh\n")) << "one byte fits; it is taken back";
    EXPECT_FALSE(file.append("ABCDEFGH\n"));
  }
  EXPECT_TRUE(file.append("again\n"));
  EXPECT_EQ(read_file(dir.file("a")), "12345678\nagain\n");
  EXPECT_EQ(file.lost(), 2U);
}

TEST(AppendFile, ADeviceWithoutRoomWarnsOnce) {
  auto file = AppendFile::resume("/dev/full", '\n');
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(file.append("x\n"));
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("/dev/full"));
  EXPECT_EQ(said.find("cannot write"), said.rfind("cannot write")) << said;
  EXPECT_EQ(file.lost(), 3U);
}

TEST(AppendFile, ABadFolderIsKnownAtTheStart) {
  EXPECT_EQ(failure_of([] { make_folders("/proc/no/such"); }).kind, Kind::system);
  EXPECT_EQ(failure_of([] { AppendFile::fresh(std::string("/no/such/folder/a")); }).kind, Kind::system);
}

}  // namespace
}  // namespace cohort::observe
