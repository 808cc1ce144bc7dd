#include "cohort/base/regular_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"

namespace cohort {
namespace {

using testing::AllOf;
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

TEST(OpenFolderIn, StaysInTheFolderWhenALinkIsPutInItsPlace) {
  const TempDir dir, elsewhere;
  fs::create_directory_symlink(dir.path(), elsewhere.file("run"));  // given by the user: followed
  const Fd folder = open_folder_in(elsewhere.file("run"), "events");
  fs::rename(dir.file("events"), dir.file("moved"));
  fs::create_directory_symlink(elsewhere.path(), dir.file("events"));
  const Fd file(::openat(folder.get(), "written", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  EXPECT_TRUE(fs::exists(dir.file("moved/written")));
  EXPECT_FALSE(fs::exists(elsewhere.file("written")));
}

TEST(OpenFolderIn, RefusesALinkAndAFifoInItsPlaceAtOnce) {
  const TempDir dir, elsewhere;
  fs::create_directory_symlink(elsewhere.path(), dir.file("link"));
  fs::create_symlink(elsewhere.file("none"), dir.file("dangling"));
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  for (const char* name : {"link", "dangling", "fifo"})
    for (const auto& error :
         {failure_of([&] { open_folder_in(dir.path(), name); }), failure_of([&] { refuse_in_place_of_folder(dir.file(name)); })}) {
      EXPECT_EQ(error.kind, Kind::corrupt) << name;
      EXPECT_THAT(error.what, HasSubstr(dir.file(name)));
    }
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
  EXPECT_NO_THROW(refuse_in_place_of_folder(dir.file("missing")));
  EXPECT_NO_THROW(refuse_in_place_of_folder(dir.path()));
}

}  // namespace
}  // namespace cohort
