#include "cohort/base/folder.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/base/regular_file.h"

namespace cohort {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;
namespace fs = std::filesystem;

// <dir>/run/checkpoints, and somebody who puts a link that leads elsewhere in its place.
struct Exchanged : testing::Test {
  TempDir dir, elsewhere;
  std::string path = dir.file("run/checkpoints");

  Exchanged() { fs::create_directories(path); }
  void exchange() const {
    fs::rename(path, dir.file("run/moved"));
    fs::create_directory_symlink(elsewhere.path(), path);
  }
  std::string moved(const std::string& name) const { return dir.file("run/moved/" + name); }
};
using HeldFolder = Exchanged;

TEST_F(HeldFolder, StaysTheSameWhenALinkIsPutInItsPlace) {
  write_file_atomically(elsewhere.file("old"), "precious");
  fs::create_directory(elsewhere.file("tree"));
  const Folder held(path, 1);
  write_file_atomically({held, "old"}, "mine");
  held.make("tree");
  exchange();
  write_file_atomically({held, "new"}, "text");
  held.make("made");
  held.rename("new", "renamed");
  EXPECT_FALSE(remove_tree({held, "tree"}));
  held.remove_file("old");
  EXPECT_EQ(read_regular_file({held, "renamed"}, 10), "text");
  EXPECT_THAT(held.names(), UnorderedElementsAre("made", "renamed"));
  EXPECT_TRUE(fs::is_directory(moved("made")) && fs::exists(moved("renamed")));
  EXPECT_EQ(read_file(elsewhere.file("old")), "precious");
  EXPECT_TRUE(fs::is_directory(elsewhere.file("tree")));
  EXPECT_EQ(std::distance(fs::directory_iterator(elsewhere.path()), {}), 2);
}

TEST_F(HeldFolder, FollowsLinksThatAreItsUsersAndNoneOfItsOwn) {
  fs::create_directory_symlink(dir.file("run"), dir.file("given"));
  EXPECT_NO_THROW(Folder(dir.file("given/checkpoints"), 1));
  EXPECT_EQ(failure_of([&] { Folder(dir.file("given/checkpoints"), 2); }).kind, Kind::corrupt);
  exchange();
  EXPECT_NO_THROW(Folder(path, 0));
  const auto error = failure_of([&] { Folder(path + "/", 1); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, HasSubstr(path + " is a symbolic link"));
}

TEST_F(HeldFolder, RefusesALinkAndAFifoInPlaceOfAFolderAtOnce) {
  const Folder held(path, 1);
  fs::create_directory_symlink(elsewhere.path(), path + "/link");
  fs::create_symlink(elsewhere.file("none"), path + "/dangling");
  ASSERT_EQ(::mkfifo((path + "/fifo").c_str(), 0600), 0);
  for (const char* name : {"link", "dangling", "fifo"})
    for (const auto& error : {failure_of([&] { held.make(name); }), failure_of([&] { held.inner(name); }),
                              failure_of([&] { Folder::if_there(held.path_of(name), 1); })}) {
      EXPECT_EQ(error.kind, Kind::corrupt) << name;
      EXPECT_THAT(error.what, HasSubstr(held.path_of(name)));
    }
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
  EXPECT_FALSE(Folder::if_there(held.path_of("missing"), 1));
  EXPECT_TRUE(Folder::if_there(path, 1));
}

TEST_F(HeldFolder, RelativePathsAndSlashesAtTheEndAreTheSame) {
  const auto before = fs::current_path();
  fs::current_path(dir.file("run"));
  write_file_atomically({Folder("checkpoints", 1), "a"}, "1");
  write_file_atomically({Folder("./checkpoints//", 1), "b"}, "2");
  fs::current_path(before);
  EXPECT_THAT(Folder(path).names(), UnorderedElementsAre("a", "b"));
  EXPECT_NO_THROW(Folder("/", 0));
}

TEST_F(HeldFolder, ATreeIsRemovedAlthoughAnotherStillWritesIntoIt) {
  const Folder held(path, 1);
  for (int round = 0; round < 20; ++round) {
    const Folder inner = held.make("tree");
    std::atomic<int> written = 0;
    std::thread writer([&] {
      try {
        while (true) write_file_atomically({inner, std::to_string(written++)}, "part");
      } catch (const Failure&) {  // it is gone
      }
    });
    while (written < 3) std::this_thread::yield();
    EXPECT_FALSE(remove_tree({held, "tree"}));
    writer.join();
    ASSERT_THAT(held.names(), ElementsAre()) << "round " << round;
  }
}

}  // namespace
}  // namespace cohort
