#include "cohort/base/regular_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"

namespace cohort {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(RegularFile, IsReadAndNothingInItsPlaceIs) {
  const TempDir dir;
  write_file_atomically(dir.file("a"), "text");
  EXPECT_EQ(read_regular_file(dir.file("a"), 4), "text");
  EXPECT_EQ(failure_of([&] { read_regular_file(dir.file("a"), 3); }).kind, Kind::usage);
  fs::create_symlink(dir.file("a"), dir.file("link"));
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  fs::create_directory(dir.file("folder"));
  for (const char* name : {"link", "fifo", "folder"}) {
    const auto error = failure_of([&] { read_regular_file(dir.file(name), 10); });
    EXPECT_EQ(error.kind, Kind::corrupt) << name;
    EXPECT_THAT(error.what, HasSubstr(dir.file(name)));
  }
}

}  // namespace
}  // namespace cohort
