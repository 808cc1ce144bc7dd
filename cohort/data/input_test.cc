#include "cohort/data/input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <filesystem>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/data/testing.h"

namespace cohort::data {

using testing::HasSubstr;

TEST(Input, ReadsPlainAndGzipAlike) {
  const TempDir dir;
  const std::string text(300000, 'x');
  write_file_atomically(dir.file("plain"), text);
  write_file_atomically(dir.file("packed"), gzip(text));
  EXPECT_EQ(read_input(dir.file("plain")), text);
  EXPECT_EQ(read_input(dir.file("packed")), text);
}

TEST(Input, ReadsSeveralGzipMembersAsOneFile) { EXPECT_EQ(inflate_gzip(gzip("one ") + gzip("two"), "here", 100), "one two"); }

TEST(Input, NoticesEveryPlaceWhereGzipMayBeCutShort) {
  const std::string packed = gzip("some text, some more text, some text again");
  for (std::size_t n = 2; n < packed.size(); ++n) {
    const Error error = failure_of([&] { inflate_gzip(packed.substr(0, n), "a.gz", 1000); });
    EXPECT_EQ(error.kind, Kind::corrupt) << n;
    EXPECT_THAT(error.what, HasSubstr("a.gz"));
  }
}

TEST(Input, NoticesFlippedBytesInGzip) {
  std::string packed = gzip("some text, some more text, some text again");
  packed[packed.size() - 6] ^= 1;  // the checksum
  EXPECT_EQ(failure_of([&] { inflate_gzip(packed, "a.gz", 1000); }).kind, Kind::corrupt);
}

TEST(Input, RefusesToInflateMoreThanAllowed) {
  EXPECT_THAT(failure_of([] { inflate_gzip(gzip(std::string(100000, 'a')), "bomb.gz", 1000); }).what, HasSubstr("more than 1000 B"));
}

TEST(Input, RefusesAFileThatIsWrittenWhileItIsRead) {
  const TempDir dir;
  const std::string path = dir.file("train.csv");
  write_file_atomically(path, "1,2\n");
  EXPECT_EQ(read_unchanged(path, state_of(path), [&] { return read_file(path); }), "1,2\n");
  const Error grown = failure_of([&] {
    read_unchanged(path, state_of(path), [&] {
      std::string content = read_file(path);
      write_file_atomically(path, "1,2\n3,4\n");
      return content;
    });
  });
  EXPECT_EQ(grown.kind, Kind::corrupt);
  EXPECT_THAT(grown.what,
              AllOf(HasSubstr(path + " changed while it was read: it had 4 bytes and has 8"), HasSubstr("start the run again")));
  const FileState before = state_of(path);
  write_file_atomically(path, "5,6\n7,8\n");  // as long as before
  EXPECT_THAT(failure_of([&] { read_unchanged(path, before, [&] { return read_file(path); }); }).what,
              HasSubstr("changed since the data set was opened: its 8 bytes were written again"));
  std::filesystem::remove(path);
  EXPECT_THAT(failure_of([&] { read_unchanged(path, before, [&] { return read_file(path); }); }).what,
              HasSubstr("it is not there any more"));
}

TEST(Input, NamesTheFilesItLookedFor) {
  const TempDir dir;
  constexpr std::array<std::string_view, 2> names{"a", "b"};
  const Error error = failure_of([&] { find_input(dir.path(), names, "install it"); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, AllOf(HasSubstr("/a.gz"), HasSubstr("/b"), HasSubstr("install it")));
}

}  // namespace cohort::data
