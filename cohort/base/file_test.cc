#include "cohort/base/file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::size_t entries(const std::string& folder) { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {})); }

TEST(File, ATreeIsRemovedWithoutFollowingLinks) {
  const TempDir dir;
  write_file_atomically(dir.file("kept"), "x");
  fs::create_directories(dir.file("tree") + "/a/b");
  write_file_atomically(dir.file("tree") + "/a/b/c", "x");
  fs::create_directory_symlink(dir.path(), dir.file("tree") + "/link");
  EXPECT_FALSE(remove_tree(dir.file("tree")));
  EXPECT_EQ(entries(dir.path()), 1U);
  EXPECT_FALSE(remove_tree(dir.file("tree"))) << "nothing there is no error";
  EXPECT_FALSE(remove_tree(dir.file("kept")));
  EXPECT_EQ(entries(dir.path()), 0U);
  EXPECT_EQ(remove_tree("/proc/self/status").value(), EPERM);
}

TEST(File, WritesAndReadsBackAnyBytes) {
  const TempDir dir;
  std::string content(100'000, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7);
  write_file_atomically(dir.file("a"), content);
  EXPECT_EQ(read_file(dir.file("a")), content);
  write_file_atomically(dir.file("a"), "");
  EXPECT_EQ(read_file(dir.file("a")), "");
  EXPECT_EQ(entries(dir.path()), 1U) << "no temporary stays";
}

TEST(File, ReadsFilesThatHideTheirSize) { EXPECT_THAT(read_file("/proc/self/status"), HasSubstr("Pid:")); }

TEST(File, HonoursTheMode) {
  const TempDir dir;
  write_file_atomically(dir.file("secret"), "x", 0600);
  struct stat st {};
  ASSERT_EQ(stat(dir.file("secret").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600U);
}

TEST(File, AFailureNamesThePathAndLeavesTheOldFileAlone) {
  const TempDir dir;
  EXPECT_THAT(failure_of([&] { read_file(dir.file("none")); }).what, HasSubstr(dir.file("none") + ": No such file"));
  EXPECT_THAT(failure_of([&] { read_file(dir.path()); }).what, HasSubstr("Is a directory"));
  const auto error = failure_of([&] { write_file_atomically(dir.file("no/where"), "x"); });
  EXPECT_EQ(error.kind, Kind::system);
  EXPECT_THAT(error.what, HasSubstr(dir.file("no/where")));
  fs::create_directory(dir.file("taken"));
  EXPECT_EQ(failure_of([&] { write_file_atomically(dir.file("taken"), "x"); }).kind, Kind::system);
  EXPECT_EQ(entries(dir.path()), 1U) << "the temporary is gone";
}

TEST(File, RefusesFilesThatAreTooLarge) {
  const TempDir dir;
  write_file_atomically(dir.file("a"), std::string(1001, 'x'));
  EXPECT_EQ(read_file(dir.file("a"), 1001).size(), 1001U);
  const auto error = failure_of([&] { read_file(dir.file("a"), 1000); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, HasSubstr(dir.file("a")));
  EXPECT_EQ(failure_of([&] { read_file("/dev/zero", 1000); }).kind, Kind::usage) << "endless files too";
}

TEST(File, TemporaryFoldersArePrivateAndVanish) {
  std::string path;
  {
    const TempDir dir("thing");
    path = dir.path();
    EXPECT_THAT(path, HasSubstr("/thing-"));
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    fs::create_directories(dir.file("a/b"));
    write_file_atomically(dir.file("a/b/c"), "x");
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(FileProcess, AForkedChildLeavesTheFolderToItsParent) {
  auto dir = std::make_unique<TempDir>();
  const pid_t child = fork();
  if (child == 0) {
    dir.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(fs::exists(dir->path()));
}

TEST(File, UniqueNamesDiffer) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(unique_name("x"));
  EXPECT_EQ(names.size(), 1000U);
}

}  // namespace
}  // namespace cohort
